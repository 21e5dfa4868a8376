"""One change of the whole tree, by linear sweeps; repeated, that is hill climbing."""
