//! Why a stream can't be taken up by another replica.

/// Why no other replica could go on exactly where one broke off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfit {
    /// `n`, `best_of` or beam search: several answers are under way at once.
    SeveralAnswers,
    /// Tools or functions: a call that was begun can't be handed over as text.
    Tools,
    /// A format is enforced: its state is that of the whole answer, and a new one begins at the start.
    Structured,
    /// Probabilities of tokens, prompt texts in the reply, hidden states: more than text.
    Logprobs,
    /// The prompt is to be repeated.
    Echo,
    /// Text is put into a gap: the prompt can't be made longer without changing what it means.
    Suffix,
    /// A seed was given and a temperature other than 0: the dice would be thrown anew.
    Seed,
    /// Penalties count what was generated, and a prompt is not.
    Penalties,
    /// The prompt is no single text.
    TokenPrompt,
    /// How much may be generated is the engine's secret, so that nobody knows what is left of it.
    NoLimit,
    /// The request itself continues a message.
    Prefilled,
    /// Anything but text is asked for.
    Media,
    /// The model thinks aloud: templates leave thoughts out of earlier messages.
    Reasoning,
    /// The text begins with white space, which templates may take away.
    LeadingSpace,
    /// The text ends in half a character.
    HalfCharacter,
    /// The text ends with what may be the beginning of a stop sequence.
    StopBegun,
    /// The text is longer than may be kept.
    TooLong,
    /// An event was not understood.
    Unreadable,
    /// Only the usage was missing, and nobody told it.
    UsageUnknown,
}

impl Unfit {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::SeveralAnswers,
        Self::Tools,
        Self::Structured,
        Self::Logprobs,
        Self::Echo,
        Self::Suffix,
        Self::Seed,
        Self::Penalties,
        Self::TokenPrompt,
        Self::NoLimit,
        Self::Prefilled,
        Self::Media,
        Self::Reasoning,
        Self::LeadingSpace,
        Self::HalfCharacter,
        Self::StopBegun,
        Self::TooLong,
        Self::Unreadable,
        Self::UsageUnknown,
    ];

    /// Name as it stands in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SeveralAnswers => "several_answers",
            Self::Tools => "tools",
            Self::Structured => "structured",
            Self::Logprobs => "logprobs",
            Self::Echo => "echo",
            Self::Suffix => "suffix",
            Self::Seed => "seed",
            Self::Penalties => "penalties",
            Self::TokenPrompt => "token_prompt",
            Self::NoLimit => "no_limit",
            Self::Prefilled => "prefilled",
            Self::Media => "media",
            Self::Reasoning => "reasoning",
            Self::LeadingSpace => "leading_space",
            Self::HalfCharacter => "half_character",
            Self::StopBegun => "stop_begun",
            Self::TooLong => "too_long",
            Self::Unreadable => "unreadable",
            Self::UsageUnknown => "usage_unknown",
        }
    }
}
