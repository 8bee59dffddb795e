//! What a machine can check of this workspace.

fn main() {}
