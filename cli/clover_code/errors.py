"""The command's own exception."""


class UserError(Exception):
    """Something that the user can correct; the message is one line and says how."""
