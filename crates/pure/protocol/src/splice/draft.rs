//! Bodies with changes that depend on the server.

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::{BodyPositions, Edit, SaltField, Segments, UsageWish, model_edit};
use crate::Facts;

/// Changes to a body that depend on the server that gets it: usage reports and a salt.
/// [`change`](super::change) needs the body's facts, which borrow from the body; a draft can be kept
/// until a server is chosen.
#[derive(Clone, Debug)]
pub struct BodyDraft {
    salt: Option<String>,
    places: BodyPositions,
}

impl BodyDraft {
    /// Creates the draft of a body whose model gets another name, if one is given: the body that
    /// [`Self::apply`] takes has that name already. `salt` is put only where [`Self::apply`] is given
    /// a field for it.
    ///
    /// `facts` must be those that [`crate::read_facts`] returned for this very body, before its model
    /// got another name.
    #[must_use]
    pub fn new(body: &[u8], facts: &Facts<'_>, model: Option<&str>, salt: Option<String>) -> Self {
        let places = BodyPositions::of(facts, body);
        let places = match model {
            Some(model) => places.after(&model_edit(facts, model)),
            None => places,
        };
        Self { salt, places }
    }

    /// Returns the draft of another body of the same request, with the same salt; `None` if the body
    /// cannot be parsed.
    #[must_use]
    pub fn with_body(self, body: &Segments) -> Option<Self> {
        let body = in_one_piece(body);
        let places = BodyPositions::of(&crate::read_facts(&body).ok()?, &body);
        Some(Self { places, ..self })
    }

    /// Returns true if the body can be given a salt.
    #[must_use]
    pub fn has_salt(&self) -> bool {
        self.salt.is_some()
    }

    /// Returns the part of a wish that the client does not ask for itself: `Throughout` or `AtEnd`
    /// if the body of that wish has options that the client did not send.
    #[must_use]
    pub fn beyond_client(&self, wish: UsageWish) -> UsageWish {
        self.places.beyond_client(wish)
    }

    /// Returns the body with a request for this usage, and with the salt in this field. `body` must
    /// be the one of this draft.
    #[must_use]
    pub fn apply(&self, body: &Segments, usage: UsageWish, salt: Option<SaltField>) -> Segments {
        let mut edits = SmallVec::<[Edit; 4]>::new();
        let salt = salt.zip(self.salt.as_deref());
        // The salt comes first: a field behind it in the same place needs its comma.
        edits.extend(salt.map(|(field, salt)| self.places.salt_edit(field, salt, false)));
        self.places.add_usage_edits(usage, &mut edits);
        edits.sort_by_key(|edit| edit.at.start);
        body.edited(edits)
    }
}

fn in_one_piece(body: &Segments) -> Bytes {
    let mut slices = body.iter();
    if let (Some(only), None) = (slices.next(), slices.next()) {
        return only.clone();
    }
    let mut whole = BytesMut::with_capacity(body.len());
    body.iter().for_each(|slice| whole.extend_from_slice(slice));
    whole.freeze()
}
