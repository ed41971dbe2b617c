"""A student of a teacher's translations, from one recipe to a report."""
