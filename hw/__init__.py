"""What machine this is and what it can do. Imports none of our other packages."""
