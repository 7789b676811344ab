"""Reading: fetch sessions, long polls, and the way from offsets to stored bytes."""
