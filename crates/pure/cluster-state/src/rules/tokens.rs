//! Rules for join tokens.

use crate::limits::TOKEN_MS_MAX;
use crate::rules::check;
use crate::state::Turn;
use crate::{
    CommandError, JoinToken, NodeSpec, Records, RefusalCode, TokenId, TokenSignature, TokenTerms,
};

/// Returns the record of a new token. Its life begins now, by the cluster's clock.
///
/// # Errors
/// Returns an error if the region's name can't be one, or the life is too long.
pub(super) fn made(turn: &Turn<'_>, terms: &TokenTerms) -> Result<JoinToken, CommandError> {
    let TokenTerms { key, region, valid_ms, uses, is_operator: _ } = terms;
    region.as_ref().map_or(Ok(()), |it| check::name(it.as_str(), "region"))?;
    check::range(*valid_ms, (1, TOKEN_MS_MAX), "life of a join token")?;
    let expires_ms = turn.ledger.stamp_ms.saturating_add(*valid_ms);
    Ok(JoinToken { key: key.clone(), region: region.clone(), expires_ms, uses_left: *uses })
}

/// Returns the token with one use less.
///
/// # Errors
/// Returns [`RefusalCode::TokenRefused`] if the token does not let this node in.
pub(super) fn used(
    turn: &Turn<'_>,
    signature: &TokenSignature,
    spec: &NodeSpec,
) -> Result<JoinToken, CommandError> {
    check::name(signature.id.as_str(), "join token")?;
    let token = turn.get::<JoinToken>(&signature.id).ok_or_else(unknown)?;
    // The signature is checked first: other refusals reveal something about the token.
    check_signature(turn, signature, token, spec)?;
    if turn.ledger.stamp_ms >= token.expires_ms {
        return Err(refused("the join token has expired"));
    }
    if token.region.as_ref().is_some_and(|only| *only != spec.region) {
        return Err(refused("the join token is for another region"));
    }
    let Some(uses_left) = token.uses_left.checked_sub(1) else {
        return Err(refused("the join token is used up"));
    };
    Ok(JoinToken { uses_left, ..token.clone() })
}

/// Checks that the token's holder signed for exactly this node and this cluster, so that no other
/// party decides on any part of the node's record.
fn check_signature(
    turn: &Turn<'_>,
    signature: &TokenSignature,
    token: &JoinToken,
    spec: &NodeSpec,
) -> Result<(), CommandError> {
    let cluster = turn.ledger.cluster;
    // A wrong signature gets the same answer as an unknown token, so that ids can't be guessed.
    let is_signed = cluster.is_some_and(|cluster| signature.is_by(&token.key, cluster, spec));
    is_signed.then_some(()).ok_or_else(unknown)
}

/// Moves the ends of tokens back by `back_ms`, as the cluster's clock went back, so that no token
/// lives longer than it was meant to. A token made while the clock was wrong keeps the life that it
/// has left. The token that entry `index` made is left out: its end is right already. Watchers are
/// not notified, since the life that is left is the same.
pub(crate) fn shorten(records: &mut Records, back_ms: u64, index: u64) {
    if back_ms == 0 {
        return;
    }
    let rows = records.join_tokens.rows().filter(|(_, row)| row.version() != index);
    let ids: Vec<TokenId> = rows.map(|(id, _)| id.clone()).collect();
    for id in ids {
        let shorten = |token: &mut JoinToken| {
            token.expires_ms = token.expires_ms.saturating_sub(back_ms);
        };
        records.join_tokens.amend(&id, shorten);
    }
}

pub(super) fn refused(cause: &str) -> CommandError {
    let remedy = "make one with `spillway join-token create`";
    CommandError::new(RefusalCode::TokenRefused, cause, remedy)
}

fn unknown() -> CommandError {
    refused("there is no such join token")
}
