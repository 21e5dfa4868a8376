"""From what a model wrote to the theorems that it stated."""
