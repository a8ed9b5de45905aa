//! Fuzz targets of input from other nodes.

use crate::cluster::fuzz::{homes_message, model_list, residency_header};

/// Fuzz target: the name of the folder of its inputs, and the function that runs one of them.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    ("residency_header", residency_header),
    ("peer_model_list", model_list),
    ("peer_homes", homes_message),
];

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
