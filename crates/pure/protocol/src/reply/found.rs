//! Facts in one JSON document.

use super::api::ReplyApi;
use super::event_kind::EventKind;
use super::finish::{Finish, FinishWord};
use super::reply_error::ReplyError;
use super::schema::{Fact, Form};
use super::text::{beginning_of, text_of};
use super::usage::{Counts, Usage};

/// Facts in one document: a whole reply, or the data of an event.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) id: Option<Box<str>>,
    pub(super) model: Option<Box<str>>,
    pub(super) usage: Option<Usage>,
    /// Counts of the usage object that is open.
    counts: Counts,
    pub(super) finish: Option<Finish>,
    /// True if a reason for the end was given, even if it is null.
    has_reason: bool,
    /// Last status of a response.
    status: Option<FinishWord>,
    pub(super) error: Option<Box<ReplyError>>,
    pub(super) has_content: bool,
    /// Type of the event, by its data.
    pub(super) kind: EventKind,
    /// True if the document is an object of type `error`, whose own members describe it.
    is_error: bool,
    /// Members of the document that describe an error if it is one.
    own_error: Option<Box<ReplyError>>,
    /// True if facts come from the member `response`.
    has_response: bool,
}

impl Found {
    /// Takes a value, as JSON. `is_cut` is true if only its beginning is given.
    pub(super) fn put(&mut self, fact: Fact, json: &[u8], is_cut: bool) {
        match fact {
            Fact::Count(count) if !is_cut => self.counts.put(count, json),
            Fact::Id if !is_cut => self.id = text_of(json).or_else(|| self.id.take()),
            Fact::Model if !is_cut => self.model = text_of(json).or_else(|| self.model.take()),
            Fact::Kind if !is_cut => {
                let word = json.strip_prefix(b"\"").and_then(|word| word.strip_suffix(b"\""));
                self.kind = EventKind::of(word.unwrap_or_default());
                self.is_error |= self.kind.is_error;
            }
            Fact::Object => self.is_error |= json == b"\"error\"",
            Fact::Status => self.status = Some(FinishWord::of_status(json)),
            Fact::Reason => self.reason(json, is_cut),
            // An error that is null or a list is none.
            Fact::ErrorText if !json.starts_with(b"\"") => {}
            Fact::ErrorText | Fact::ErrorCode | Fact::ErrorKind => {
                let error = self.error.get_or_insert_default();
                describe(error, fact, json, is_cut);
            }
            Fact::OwnText | Fact::OwnCode => {
                let fact = if fact == Fact::OwnText { Fact::ErrorText } else { Fact::ErrorCode };
                describe(self.own_error.get_or_insert_default(), fact, json, is_cut);
            }
            Fact::Count(_) | Fact::Id | Fact::Model | Fact::Kind => {}
        }
    }

    /// Notes the beginning of a usage object.
    pub(super) fn begin_usage(&mut self) {
        self.counts = Counts::default();
    }

    /// Notes the end of a usage object.
    pub(super) fn end_usage(&mut self) {
        self.usage = self.counts.usage().or(self.usage);
    }

    /// Notes that the member `error` is an object.
    pub(super) fn put_error(&mut self) {
        self.error = Some(Box::default());
    }

    /// Notes that the member `response` is an object.
    pub(super) fn put_response(&mut self) {
        self.has_response = true;
    }

    /// Works out facts that need the end of the document. `named` is the event's kind by its name.
    pub(super) fn settle(&mut self, form: Form, api: ReplyApi, named: EventKind) {
        let kind = self.kind.or(named);
        if form == Form::Event && self.has_response && !kind.is_of_response {
            *self = Self { has_content: self.has_content, kind: self.kind, ..Self::default() };
            return;
        }
        if (self.is_error || named.is_error) && self.error.is_none() {
            self.error = Some(self.own_error.take().unwrap_or_default());
        }
        let status = match (form, self.status) {
            // The reply to a request in the background: the response follows elsewhere.
            (Form::Whole, Some(FinishWord::Open)) if api == ReplyApi::Responses => {
                FinishWord::Ended(Finish::Normal)
            }
            (Form::Event, _) if !kind.is_last => FinishWord::Open,
            (Form::Event, None | Some(FinishWord::Open)) => kind.last_word(),
            (_, status) => status.unwrap_or(FinishWord::Open),
        };
        self.end(status);
    }

    /// Takes the end of a document for the end of its content, if it gives no reason at all. Some
    /// servers leave the reason out of whole replies.
    pub(super) fn end_whole(&mut self) {
        let has_reason = self.has_reason || self.status.is_some();
        if !has_reason && self.has_content && self.finish.is_none() {
            self.finish = Some(Finish::Normal);
        }
    }

    fn reason(&mut self, json: &[u8], is_cut: bool) {
        self.has_reason = true;
        self.end(if is_cut {
            FinishWord::Ended(Finish::Normal)
        } else {
            FinishWord::of_reason(json)
        });
    }

    fn end(&mut self, word: FinishWord) {
        match word {
            FinishWord::Open => {}
            FinishWord::Ended(finish) => self.finish = self.finish.max(Some(finish)),
            FinishWord::Failed => {
                self.error.get_or_insert_default();
            }
        }
    }
}

/// Takes one member of an error.
fn describe(error: &mut ReplyError, fact: Fact, json: &[u8], is_cut: bool) {
    match fact {
        Fact::ErrorText => error.message = beginning_of(json).unwrap_or_default(),
        Fact::ErrorCode if !is_cut => error.take_code(json),
        Fact::ErrorKind if !is_cut => error.kind = text_of(json),
        _ => {}
    }
}
