"""One page that says what runs came to: HTML that needs nothing but a browser."""
