//! Fuzz targets of statements about shares.

use std::collections::{BTreeMap, BTreeSet};

use spillway_types::NodeName;

use crate::{
    Ground, LimitKind, Overdue, PoolTerms, ROWS_MAX, Run, Scope, ShareLine, Shares, Statement,
    Units, floors,
};

/// Fuzz target: the name of its input folder, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[("share_statements", share_statements)];

/// The whole limit of each kind.
const WHOLE: [u64; 3] = [10, 1_000, u64::MAX];
/// Bytes of input for one statement.
const STATEMENT_BYTES: usize = 12;

/// Asserts that all units that nodes may use together stay within each limit, for any statements.
fn share_statements(input: &[u8]) {
    let members: BTreeSet<NodeName> = ["a".into(), "b".into(), "c".into()].into();
    let whole = WHOLE.map(Some);
    let regions = [("x".into(), vec!["a".into(), "b".into()]), ("y".into(), vec!["c".into()])];
    let floors = floors(whole, &BTreeMap::new(), &regions.into());
    let terms = |_: &Scope| {
        Some(PoolTerms { whole, floors: floors.clone(), nodes: 3, ..PoolTerms::default() })
    };
    let ground = Ground { members: &members, terms: &terms, rows_max: ROWS_MAX };
    let mut shares = Shares::default();
    for bytes in input.chunks_exact(STATEMENT_BYTES).take(64) {
        let before = shares.clone();
        if shares.apply(&statement(bytes), &ground).is_err() {
            assert_eq!(shares, before, "a statement that is refused changes nothing");
        }
        for pool in shares.pools().values() {
            let taken = pool.taken();
            for kind in LimitKind::ALL {
                assert!(taken[kind] <= WHOLE[kind as usize], "{kind}: {taken:?} of {WHOLE:?}");
            }
        }
    }
}

/// Builds a statement of numbers that are small or at an edge, so that statements interact.
fn statement(bytes: &[u8]) -> Statement {
    let number = |at: usize| match bytes[at] {
        small @ 0..=199 => u64::from(small),
        edge => u64::MAX - u64::from(255 - edge),
    };
    let node = |byte: u8| NodeName::from(["a", "b", "c", "d"][usize::from(byte % 4)]);
    let units = |at: usize| Units([number(at), number(at).saturating_mul(7), number(at + 1)]);
    let scope = if bytes[1] & 1 == 0 { Scope::Global } else { Scope::Key("k".to_owned()) };
    let line = ShareLine { scope, floor: units(2), lease: units(4), need: units(6) };
    let kinds = [bytes[1] & 2 == 0, bytes[1] & 4 == 0, bytes[1] & 8 == 0];
    let other = Run { node: node(bytes[8] >> 2), incarnation: u64::from(bytes[8] % 4) };
    Statement {
        run: Run { node: node(bytes[0] >> 2), incarnation: u64::from(bytes[0] % 4) },
        serial: number(9),
        length_ms: u32::from(bytes[10]),
        lines: vec![line; usize::from(bytes[1] & 64 == 0)],
        overdue: vec![Overdue { run: other, serial: number(11), kinds }],
        is_last: bytes[1] & 128 != 0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
