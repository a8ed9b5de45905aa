//! Engines of the profiles beside published measurements of the machines. The page
//! docs/measured/engine.md has the table of this test.
#![expect(clippy::unwrap_used, reason = "a test's helper fails by panicking")]
#![expect(clippy::print_stdout, reason = "the table of docs/measured/engine.md")]

mod comparison;
mod cpu;
mod load;
mod points;
