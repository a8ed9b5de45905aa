//! Second checker for tests: tries every order, without memory or pruning.

use super::history::{Operation, OperationEnd};
use super::model::Model;

/// Returns true if some order of `operations`, all of one key, explains their answers.
pub(crate) fn is_linearizable<K, M: Model>(
    model: &M,
    operations: &[Operation<K, M::Input, M::Output>],
) -> bool {
    let left: Vec<_> = operations
        .iter()
        .filter(|operation| !matches!(operation.end, OperationEnd::Failed))
        .collect();
    any_order(model, &model.initial(), &left)
}

fn any_order<K, M: Model>(
    model: &M,
    state: &M::State,
    left: &[&Operation<K, M::Input, M::Output>],
) -> bool {
    // The remaining operations may never have taken effect.
    if left.iter().all(|operation| matches!(operation.end, OperationEnd::Unknown)) {
        return true;
    }
    (0..left.len()).any(|next| {
        let mut others = left.to_vec();
        let operation = others.remove(next);
        // An operation that returned before this one was called must come first.
        let is_after = |other: &&Operation<_, _, _>| {
            matches!(other.end, OperationEnd::Returned { at_ns, .. } if at_ns < operation.call_ns)
        };
        if others.iter().any(is_after) {
            return false;
        }
        let output = match &operation.end {
            OperationEnd::Returned { output, .. } => Some(output),
            OperationEnd::Unknown | OperationEnd::Failed => None,
        };
        let after = model.step(state, &operation.input, output);
        after.is_some_and(|after| any_order(model, &after, &others))
    })
}
