"""Views of an inspection: data, JSON, text and tab of each."""
