//! Allocations of the gateway's own thread from a client's first byte to its last one, the
//! replica's connection and the record included.

use crate::world::{SHAPES, with_each_shape};

/// Requests before the count: connections, pools and tables are there then.
const WARM_UP: usize = 50;
const COUNTED: usize = 200;

/// Budgets, in the order of [`SHAPES`]. A commit that raises one gives the reason.
const BUDGETS: [u64; SHAPES.len()] = [29, 32, 35, 41, 39, 22, 109];

#[test]
fn a_request_of_each_shape_keeps_to_its_allocations() {
    let (mut budgets, mut wrong) = (BUDGETS.into_iter(), Vec::new());
    with_each_shape(|shape, ask| {
        let budget = budgets.next().expect("a budget for each");
        ask(WARM_UP);
        let counted = allocation_counter::measure(|| ask(COUNTED)).count_total;
        // Rounded: the list of a timer or a table may just have been full.
        let each = (counted + COUNTED as u64 / 2) / COUNTED as u64;
        // Fewer are an error, too: only a lower budget preserves an improvement. Messages of
        // another node in between account for up to half an allocation per request.
        if each.abs_diff(budget) > u64::from(shape.is_forwarded) {
            wrong.push(format!("{}: {each} allocations, budget {budget}", shape.name));
        }
    });
    assert!(wrong.is_empty(), "{wrong:#?}");
}
