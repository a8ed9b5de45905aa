//! Reasons why another replica cannot continue a stream.

/// Reason why no other replica can continue exactly where one failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unfit {
    /// `n`, `best_of` or beam search: several answers are generated at once.
    SeveralAnswers,
    /// Tools or functions: a call that has begun cannot be handed over as text.
    Tools,
    /// Prescribed format: its state covers the whole answer, and a new replica would start it
    /// again.
    Structured,
    /// Logprobs, prompt texts in the reply, hidden states: more than text would have to be handed
    /// over.
    Logprobs,
    /// The prompt is repeated in the answer.
    Echo,
    /// Text is inserted into a gap: a longer prompt would change the meaning.
    Suffix,
    /// A seed with a temperature other than 0: the random numbers would start again.
    Seed,
    /// Penalties count generated tokens, and do not count those of a prompt.
    Penalties,
    /// The prompt is not a single text.
    TokenPrompt,
    /// The engine chooses the limit of tokens, so the gateway cannot know how many are left.
    NoLimit,
    /// The request itself continues a message.
    Prefilled,
    /// The answer has media other than text.
    Media,
    /// The model reasons aloud: chat templates remove reasoning from earlier messages.
    Reasoning,
    /// The text begins with white space, which chat templates may strip.
    LeadingSpace,
    /// The text ends in half a character.
    HalfCharacter,
    /// The text ends with what may be the beginning of a stop sequence.
    StopBegun,
    /// The text is longer than the limit on kept text.
    TooLong,
    /// An event could not be parsed.
    Unreadable,
    /// Only the usage is missing, and no replica has reported it.
    UsageUnknown,
}

impl Unfit {
    /// All reasons.
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

    /// Returns the name for metrics.
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
