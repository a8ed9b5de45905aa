//! The `spillway` command.

fn main() {}
