//! List of all cells, from `cells.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::Cell;

/// All cells.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CellList {
    /// Cells of the comparison.
    #[serde(rename = "cell")]
    pub(super) compared: Vec<Cell>,
    /// Cells that show how soon an exceptional load is over, overload, faults, and many regions.
    pub(super) besides: Vec<Cell>,
}

#[expect(clippy::expect_used, reason = "the file is a part of the program")]
pub(super) static CELLS: LazyLock<CellList> =
    LazyLock::new(|| toml::from_str(include_str!("cells.toml")).expect("a list of cells"));
