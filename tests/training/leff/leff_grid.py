"""Flower's grid without a network: messages go straight to the app of each node."""

from flwr.app import Context, Error, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class LocalGrid(Grid):
    """Nodes 1, 2, ... that share an app; each has a configuration and a state of its own."""

    def __init__(self, app, node_configs):
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
        self.app, self.silent, self.seen = app, set(), []
        self.contexts = {
            node: Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
            for node, config in enumerate(node_configs, start=1)
        }

    def set_run(self, run):
        pass

    @property
    def run(self):
        return None

    def create_message(self, *args, **kwargs):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        raise NotImplementedError

    def pull_messages(self, message_ids):
        raise NotImplementedError

    def send_and_receive(self, messages, *, timeout=None):
        replies = []
        for message in messages:
            self.seen.append(message)
            node, kind = message.metadata.dst_node_id, message.metadata.message_type
            if (node, kind) in self.silent:
                continue
            try:
                replies.append(self.app(message, self.contexts[node]))
            except ValueError as error:
                replies.append(Message(Error(1, str(error)), reply_to=message))
        return replies[::-1]  # the last comes first
