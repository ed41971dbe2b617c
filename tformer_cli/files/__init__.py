"""Files for every part: written aside and renamed, locked, cached, read if they are regular."""
