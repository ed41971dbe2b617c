"""Text on a terminal: labels cut by display width, tables that fit, whatever the tokens are."""
