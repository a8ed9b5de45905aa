//! Reader of replies that are one JSON document.

use std::ops::Range;

use super::api::ReplyApi;
use super::document::DocumentReader;
use super::event_kind::EventKind;
use super::facts::ReplyFacts;
use super::schema::{Form, Schema};

/// Reader of one reply that is no stream of events. The reply passes in pieces that are cut
/// anywhere; apart from single values, none of it is kept.
#[derive(Debug)]
pub struct WholeReader {
    document: DocumentReader,
    facts: ReplyFacts,
    api: ReplyApi,
}

impl WholeReader {
    /// Creates a reader for the reply to a request of this API.
    #[must_use]
    pub fn new(api: ReplyApi) -> Self {
        let document = DocumentReader::new(Schema::new(api, Form::Whole));
        Self { document, facts: ReplyFacts { is_whole: true, ..ReplyFacts::default() }, api }
    }

    /// Reads the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        if self.facts.is_done || self.facts.is_unreadable {
            return;
        }
        self.document.push(piece);
        self.look();
    }

    /// Notes that the reply has ended in good order.
    pub fn finish(&mut self) {
        if self.facts.is_done && self.api.generates() {
            self.document.found_mut().end_whole();
            self.facts.take(self.document.found_mut());
        }
    }

    /// Returns the facts so far. They change with each piece.
    #[must_use]
    pub fn facts(&self) -> &ReplyFacts {
        &self.facts
    }

    /// Returns the place of the first choice in the reply; `None` if the reply is not complete or has no
    /// choices.
    #[must_use]
    pub fn first_choice(&self) -> Option<Range<usize>> {
        self.document.first_choice().filter(|_| self.facts.is_done)
    }

    fn look(&mut self) {
        self.facts.is_unreadable = self.document.is_broken();
        if self.document.is_over() && !self.facts.is_done {
            self.facts.is_done = true;
            self.document.found_mut().settle(Form::Whole, self.api, EventKind::default());
        }
        self.facts.take(self.document.found_mut());
    }
}
