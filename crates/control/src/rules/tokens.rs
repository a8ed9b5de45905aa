//! What lets new nodes join.

use crate::limits::TOKEN_MS_MAX;
use crate::rules::check;
use crate::state::Turn;
use crate::{
    JoinToken, NodeSpec, Records, Refusal, RefusalCode, TokenId, TokenProof, TokenSignature,
    TokenTerms,
};

/// What a node shows to join by a token.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pass<'t> {
    /// What older nodes show.
    Proof(&'t TokenProof),
    /// A signature for this node alone.
    Signature(&'t TokenSignature),
}

impl Pass<'_> {
    /// Which token it is of.
    pub(super) fn id(&self) -> &TokenId {
        match self {
            Self::Proof(proof) => &proof.id,
            Self::Signature(signature) => &signature.id,
        }
    }
}

/// The record of a new token. Its life begins now, by the cluster's clock.
///
/// # Errors
/// If the region can't be one, or the life is too long.
pub(super) fn made(turn: &Turn<'_>, terms: &TokenTerms) -> Result<JoinToken, Refusal> {
    let TokenTerms { key, region, valid_ms, uses, is_operator: _ } = terms;
    region.as_ref().map_or(Ok(()), |it| check::name(it.as_str(), "region"))?;
    check::range(*valid_ms, (1, TOKEN_MS_MAX), "life of a join token")?;
    let expires_ms = turn.ledger.stamp_ms.saturating_add(*valid_ms);
    Ok(JoinToken { key: key.clone(), region: region.clone(), expires_ms, uses_left: *uses })
}

/// The token with one use less.
///
/// # Errors
/// [`RefusalCode::TokenRefused`] if it does not let this node in.
pub(super) fn used(turn: &Turn<'_>, pass: Pass<'_>, spec: &NodeSpec) -> Result<JoinToken, Refusal> {
    check::name(pass.id().as_str(), "join token")?;
    let token = turn.get::<JoinToken>(pass.id()).ok_or_else(unknown)?;
    match pass {
        Pass::Proof(proof) => check_proof(token, proof, turn.is_guarded())?,
        Pass::Signature(signature) => check_signature(turn, signature, (token, spec))?,
    }
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

/// Up to wire version 4 the record had the proof itself, and the log has what was presented: whoever
/// read either could join by it. So no proof counts as soon as all nodes know signatures.
fn check_proof(token: &JoinToken, proof: &TokenProof, is_guarded: bool) -> Result<(), Refusal> {
    match (is_guarded, token.key.matches(&proof.hash)) {
        (true, true) => Err(refused("the join token was made by an older version and has ended")),
        (false, true) => Ok(()),
        (_, false) => Err(unknown()),
    }
}

/// Checks that the token's holder lets exactly this node into this cluster: no part of what is then
/// written down is anybody else's word.
fn check_signature(
    turn: &Turn<'_>,
    signature: &TokenSignature,
    (token, spec): (&JoinToken, &NodeSpec),
) -> Result<(), Refusal> {
    let cluster = turn.ledger.cluster;
    let is_signed = cluster.is_some_and(|cluster| signature.is_by(&token.key, cluster, spec));
    is_signed.then_some(()).ok_or_else(unknown)
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
