//! Signatures by which nodes join with a token.
//!
//! A token's secret stays with the token's holder and gives an Ed25519 key pair; the cluster stores
//! the public key. A node that joins signs its own spec for this cluster and this token, so the
//! signature in the log lets in no other node.

use std::fmt;

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::{ClusterId, Hidden, NodeSpec, TokenId, key_hash};

/// Prefix of the secret for the seed of the key, so that no other hash of the secret is the seed.
const SEED: &[u8] = b"spillway join token, seed of its key\0";
/// Prefix of every signed message, so that the key signs messages of no other kind.
const CONTEXT: &[u8] = b"spillway node joins by token\0";

/// A signature of 64 bytes, in two halves since serde reads arrays of up to 32 elements.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Signature([[u8; 32]; 2]);

/// Proof that the holder of a join token lets one certain node into one certain cluster.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenSignature {
    /// Id of the token.
    pub id: TokenId,
    signature: Signature,
}

impl TokenSignature {
    /// Signs that `node` joins `cluster` by the token `id` with this secret. Equal arguments give
    /// equal signatures.
    #[must_use]
    pub(crate) fn new(id: TokenId, secret: &[u8], cluster: ClusterId, node: &NodeSpec) -> Self {
        let signed = key_pair(secret).sign(&message(&id, cluster, node));
        let mut halves = [[0; 32]; 2];
        for (half, bytes) in halves.iter_mut().zip(signed.as_ref().chunks_exact(32)) {
            half.copy_from_slice(bytes);
        }
        Self { id, signature: Signature(halves) }
    }

    /// Returns true if the holder of the token with the public key `key` signed that `node` joins
    /// `cluster` by it. The result is the same on every node: Ed25519 by RFC 8032, without batches,
    /// and a second signature can't be made from a first one.
    #[must_use]
    pub(crate) fn is_by(&self, key: &Hidden, cluster: ClusterId, node: &NodeSpec) -> bool {
        let message = message(&self.id, cluster, node);
        let key = UnparsedPublicKey::new(&ED25519, key.reveal());
        key.verify(&message, self.signature.0.as_flattened()).is_ok()
    }
}

impl fmt::Debug for TokenSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSignature").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Returns the public key of the token with this secret.
pub(crate) fn public_key(secret: &[u8]) -> Hidden {
    let mut key = [0; 32];
    key.copy_from_slice(key_pair(secret).public_key().as_ref());
    Hidden::new(key)
}

#[expect(clippy::expect_used, reason = "a seed has 32 bytes, and every 32 bytes are one")]
fn key_pair(secret: &[u8]) -> Ed25519KeyPair {
    // The secret is 32 random bytes, so one hash derives a key as well as a slower function.
    let seed = key_hash(SEED, secret);
    Ed25519KeyPair::from_seed_unchecked(seed.reveal()).expect("a seed of 32 bytes")
}

/// Returns the signed message: every field with its length, in a format of its own that does not
/// change when messages or records do.
fn message(id: &TokenId, cluster: ClusterId, node: &NodeSpec) -> Vec<u8> {
    let NodeSpec { name, region, address, disk, fingerprint, wire_oldest, wire_newest } = node;
    let parts: [&[u8]; 9] = [
        &cluster.to_bytes(),
        id.as_str().as_bytes(),
        name.as_str().as_bytes(),
        region.as_str().as_bytes(),
        address.as_bytes(),
        &disk.to_bytes(),
        &fingerprint.0,
        &wire_oldest.to_le_bytes(),
        &wire_newest.to_le_bytes(),
    ];
    let mut message = CONTEXT.to_vec();
    for part in parts {
        message.extend_from_slice(&(part.len() as u64).to_le_bytes());
        message.extend_from_slice(part);
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::{CLUSTER, node_spec};
    use crate::{DiskId, Fingerprint};

    const SECRET: &[u8] = &[b'a'; 64];

    fn signed() -> TokenSignature {
        TokenSignature::new("t".into(), SECRET, CLUSTER, &node_spec("b1", "b"))
    }

    #[test]
    fn a_signature_is_good_for_one_node_of_one_cluster_by_one_token() {
        let (key, node) = (public_key(SECRET), node_spec("b1", "b"));
        assert!(signed().is_by(&key, CLUSTER, &node));
        assert_eq!(signed(), signed(), "the same each time");
        assert!(!signed().is_by(&key, ClusterId::from_bytes([8; 16]), &node), "another cluster");
        assert!(!signed().is_by(&public_key(&[b'b'; 64]), CLUSTER, &node), "another secret");
        let renamed = TokenSignature { id: "u".into(), ..signed() };
        assert!(!renamed.is_by(&key, CLUSTER, &node), "another token");
        for other in others(&node) {
            assert!(!signed().is_by(&key, CLUSTER, &other), "{other:?}");
        }
    }

    /// The node with each of its fields changed.
    fn others(node: &NodeSpec) -> [NodeSpec; 8] {
        let it = || node.clone();
        [
            NodeSpec { name: "b2".into(), ..it() },
            NodeSpec { region: "c".into(), ..it() },
            NodeSpec { address: "10.0.0.9:1".to_owned(), ..it() },
            NodeSpec { disk: DiskId::from_bytes([1; 16]), ..it() },
            NodeSpec { fingerprint: Fingerprint([8; 32]), ..it() },
            NodeSpec { wire_oldest: 2, ..it() },
            NodeSpec { wire_newest: it().wire_newest + 1, ..it() },
            // The same characters with another boundary between them.
            NodeSpec { name: "b1b".into(), region: "".into(), ..it() },
        ]
    }

    #[test]
    fn every_bit_of_a_signature_counts() {
        let (key, node) = (public_key(SECRET), node_spec("b1", "b"));
        for bit in 0..512 {
            let mut changed = signed();
            changed.signature.0[bit / 256][bit / 8 % 32] ^= 1 << (bit % 8);
            assert!(!changed.is_by(&key, CLUSTER, &node), "bit {bit}");
        }
    }

    #[test]
    fn what_is_stored_and_what_is_shown_are_no_secrets() {
        assert!(!public_key(SECRET).matches(&key_hash(SEED, SECRET)));
        assert_eq!(format!("{:?}", signed()), "TokenSignature { id: TokenId(\"t\"), .. }");
    }
}
