//! The reference scenarios; they come with the next issue.
