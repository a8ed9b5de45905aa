//! Output of the commands.

/// Prints one line for a person or a program to read.
#[expect(clippy::print_stdout, reason = "it is what was asked for")]
pub(super) fn say(line: &str) {
    println!("{line}");
}
