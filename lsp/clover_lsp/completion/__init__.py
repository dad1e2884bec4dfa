"""From a keystroke to the suggestion that is sent."""
