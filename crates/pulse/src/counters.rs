//! What was refused and left out.

use spillway_codec::DecodeError;
use spillway_types::NodeName;

/// Why a datagram was not taken in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no intact frame of a version that is known.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    /// Its sender is no member, or not of the region it says.
    #[error("`{0}` is no member of that region")]
    Stranger(NodeName),
    /// It was made by another node than the one that sent it.
    #[error("`{0}` sent what another node made")]
    Origin(NodeName),
    /// It came before, or something newer did that makes it worthless: doubled, replayed, or late.
    #[error("it came from `{0}` before, or something newer did")]
    Old(NodeName),
    /// It says what only a node of the own region, or of another one, has to say.
    #[error("`{0}` said what is not said between our regions")]
    Misplaced(NodeName),
}

/// How often things happened since the start. They only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams handed out to be sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Datagrams taken in.
    pub taken: u64,
    /// [`Refusal::Malformed`].
    pub malformed: u64,
    /// [`Refusal::Stranger`].
    pub strangers: u64,
    /// [`Refusal::Origin`].
    pub wrong_origins: u64,
    /// [`Refusal::Old`].
    pub old: u64,
    /// [`Refusal::Misplaced`].
    pub misplaced: u64,
    /// Questions for what was missing.
    pub asked: u64,
    /// Questions of others that were answered.
    pub answered: u64,
    /// Names left out: too many, or with the id of another one.
    pub names_left_out: u64,
    /// Members left out: too many.
    pub members_left_out: u64,
    /// Datagrams that nobody took away in time.
    pub transmits_dropped: u64,
    /// Events that nobody took away in time.
    pub events_dropped: u64,
}

impl Counters {
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        let counter = match refusal {
            Refusal::Malformed(_) => &mut self.malformed,
            Refusal::Stranger(_) => &mut self.strangers,
            Refusal::Origin(_) => &mut self.wrong_origins,
            Refusal::Old(_) => &mut self.old,
            Refusal::Misplaced(_) => &mut self.misplaced,
        };
        *counter += 1;
    }
}
