//! Cache salts that keep an isolated tenant's prompts apart at the engine.

use bytes::{Bytes, BytesMut};
use spillway_protocol::{Changes, Facts, SaltField, Segments, change, salted};

/// Salted bodies of a request, for replicas that can keep cache entries apart.
#[derive(Clone, Debug)]
pub struct Salting {
    salt: String,
    /// Body with `cache_salt`.
    by_cache_salt: Segments,
    /// Body with `extra_key`.
    by_extra_key: Segments,
}

impl Salting {
    /// Builds the bodies from a body with its `facts`, with these changes and `salt` in place of
    /// the client's own.
    pub fn new(salt: String, facts: &Facts<'_>, body: &Bytes, changes: &Changes<'_>) -> Box<Self> {
        let with = |field| change(body, facts, &Changes { salt: Some((field, &salt)), ..*changes });
        let by_cache_salt = with(SaltField::CacheSalt);
        let by_extra_key = with(SaltField::ExtraKey);
        Box::new(Self { salt, by_cache_salt, by_extra_key })
    }

    /// Puts the salt into another body; `None` if that cannot be read.
    pub fn again(self, body: &Segments) -> Option<Box<Self>> {
        let body = in_one_piece(body);
        let by_cache_salt = salted(&body, (SaltField::CacheSalt, &self.salt))?;
        let by_extra_key = salted(&body, (SaltField::ExtraKey, &self.salt))?;
        Some(Box::new(Self { salt: self.salt, by_cache_salt, by_extra_key }))
    }

    /// Returns the body for a replica that uses this field.
    pub fn body(&self, field: SaltField) -> &Segments {
        match field {
            SaltField::CacheSalt => &self.by_cache_salt,
            SaltField::ExtraKey => &self.by_extra_key,
        }
    }
}

fn in_one_piece(body: &Segments) -> Bytes {
    let mut whole = BytesMut::with_capacity(body.len());
    body.iter().for_each(|slice| whole.extend_from_slice(slice));
    whole.freeze()
}
