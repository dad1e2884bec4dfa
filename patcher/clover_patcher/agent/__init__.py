"""An agent that carries out a requirement in a copy of the tree: model, tools, observations."""
