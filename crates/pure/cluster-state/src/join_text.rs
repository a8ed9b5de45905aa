//! Text form of a join token.

use std::fmt;

use crate::join_signature::public_key;
use crate::{ClusterId, Hidden, NodeSpec, TokenId, TokenSignature};

/// Random bytes in a secret.
const SECRET_BYTES: usize = 32;
/// Prefix of every join token, so that people and scanners of leaked secrets recognise one.
const MARK: &str = "swj_";
/// Longest id of a token in bytes: longer than any id that is made.
const ID_BYTES_MAX: usize = 64;

/// Text form of a join token, as operators hand it on: `swj_<id>_<secret>`, the secret in
/// lower-case hexadecimal. `Debug` shows the id alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JoinText<'t> {
    /// Id of the token, which is no secret.
    pub id: &'t str,
    secret: &'t str,
}

impl<'t> JoinText<'t> {
    /// Splits the text of a token; returns None if the text is no token.
    #[must_use]
    pub fn read(text: &'t str) -> Option<Self> {
        // From the end, since an id may have underscores.
        let (id, secret) = text.strip_prefix(MARK)?.rsplit_once('_')?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_secret = secret.len() == 2 * SECRET_BYTES && secret.bytes().all(is_digit);
        let is_id = (1..=ID_BYTES_MAX).contains(&id.len());
        (is_secret && is_id).then_some(Self { id, secret })
    }

    /// Returns the token's public key, which the cluster stores. No node can join with it.
    #[must_use]
    pub fn public_key(&self) -> Hidden {
        public_key(self.secret.as_bytes())
    }

    /// Signs that `node` joins `cluster` by this token. The signature does not reveal the secret.
    #[must_use]
    pub fn sign(&self, cluster: ClusterId, node: &NodeSpec) -> TokenSignature {
        TokenSignature::new(TokenId::from(self.id), self.secret.as_bytes(), cluster, node)
    }
}

impl fmt::Debug for JoinText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinText").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_world::{CLUSTER, node_spec};

    fn text() -> String {
        format!("swj_5c1d_{}", "a5".repeat(SECRET_BYTES))
    }

    #[test]
    fn a_token_shows_its_id_and_signs_by_its_secret() {
        let text = text();
        let token = JoinText::read(&text).unwrap();
        assert_eq!(format!("{token:?}"), "JoinText { id: \"5c1d\", .. }");
        let node = node_spec("b1", "b");
        let signature = token.sign(CLUSTER, &node);
        assert_eq!(signature.id, TokenId::from("5c1d"));
        assert!(signature.is_by(&token.public_key(), CLUSTER, &node));
    }

    #[test]
    fn nothing_else_is_a_token() {
        let (token, secret) = (text(), "a5".repeat(SECRET_BYTES));
        for wrong in [
            String::new(),
            format!("swj_{secret}"),
            format!("swj__{secret}"),
            token.to_uppercase(),
            format!("sw_5c1d_{secret}"),
            format!("{token} "),
            token[..token.len() - 1].to_owned(),
            format!("swj_{}_{secret}", "x".repeat(65)),
        ] {
            assert_eq!(JoinText::read(&wrong), None, "{wrong}");
        }
    }
}
