//! Fuzz targets of the questions and answers at the gate.

use spillway_codec::fuzz::check_message;

use super::message::{JoinAnswer, Question};

/// Name of a target's folder of inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("join_question", question), ("join_answer", answer)];

fn question(input: &[u8]) {
    drop(check_message::<Question>(input));
}

fn answer(input: &[u8]) {
    drop(check_message::<JoinAnswer>(input));
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
