//! What lets new nodes join.

use spillway_types::RegionName;

use crate::limits::TOKEN_MS_MAX;
use crate::rules::check;
use crate::state::Turn;
use crate::{JoinToken, Records, Refusal, RefusalCode, TokenId, TokenProof, TokenTerms};

/// The record of a new token. Its life begins now, by the cluster's clock.
///
/// # Errors
/// If the region can't be one, or the life is too long.
pub(super) fn made(turn: &Turn<'_>, terms: &TokenTerms) -> Result<JoinToken, Refusal> {
    let TokenTerms { hash, region, valid_ms, uses, is_operator: _ } = terms;
    region.as_ref().map_or(Ok(()), |it| check::name(it.as_str(), "region"))?;
    check::range(*valid_ms, (1, TOKEN_MS_MAX), "life of a join token")?;
    let expires_ms = turn.ledger.stamp_ms.saturating_add(*valid_ms);
    Ok(JoinToken { hash: hash.clone(), region: region.clone(), expires_ms, uses_left: *uses })
}

/// The token with one use less.
///
/// # Errors
/// [`RefusalCode::TokenRefused`] if it does not let a node of `region` in.
pub(super) fn used(
    turn: &Turn<'_>,
    proof: &TokenProof,
    region: &RegionName,
) -> Result<JoinToken, Refusal> {
    check::name(proof.id.as_str(), "join token")?;
    let token = turn.get::<JoinToken>(&proof.id).ok_or_else(unknown)?;
    check_proof(token, proof, turn.is_guarded())?;
    if turn.ledger.stamp_ms >= token.expires_ms {
        return Err(refused("the join token has expired"));
    }
    if token.region.as_ref().is_some_and(|only| only != region) {
        return Err(refused("the join token is for another region"));
    }
    let Some(uses_left) = token.uses_left.checked_sub(1) else {
        return Err(refused("the join token is used up"));
    };
    Ok(JoinToken { uses_left, ..token.clone() })
}

/// Up to wire version 4 the record had the proof itself: whoever read it in a backup could present it.
/// Such tokens end as soon as all nodes know better.
fn check_proof(token: &JoinToken, proof: &TokenProof, is_guarded: bool) -> Result<(), Refusal> {
    let is_stored_as_presented = token.hash.matches(&proof.hash);
    match (is_guarded, is_stored_as_presented) {
        (true, true) => Err(refused("the join token was made by an older version and has ended")),
        (true, false) if token.hash.matches(&proof.stored()) => Ok(()),
        (false, true) => Ok(()),
        _ => Err(unknown()),
    }
}

/// Ends tokens earlier by what the cluster's clock went back, so that none lives longer than it was
/// to: those made while the clock was wrong keep what they have left. The one that entry `index` made
/// knows the right time. Watchers are not told: the time that is left is the same.
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

pub(super) fn refused(cause: &str) -> Refusal {
    Refusal::new(RefusalCode::TokenRefused, cause, "make one with `spillway join-token`")
}

fn unknown() -> Refusal {
    refused("there is no such join token")
}
