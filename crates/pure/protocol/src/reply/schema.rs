//! Places of facts in the documents of each API.

use super::api::ReplyApi;
use super::text::MESSAGE_BYTES_MAX;
use super::usage::Count;

/// Longest id, name or word in bytes of JSON.
const WORD_BYTES_MAX: usize = 256;
/// Longest count in bytes: the largest number of 64 bits has 20 digits.
const COUNT_BYTES_MAX: usize = 20;

/// Form of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Whole reply.
    Whole,
    /// Data of one event.
    Event,
}

/// Value that is read. The JSON that is kept of it is limited by [`bytes_max`](Self::bytes_max).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Id,
    Model,
    /// Count of a usage object.
    Count(Count),
    /// Reason why the content ended.
    Reason,
    /// Status of a response.
    Status,
    /// Type of the event.
    Kind,
    /// Type of the document, as vLLM's errors have it.
    Object,
    ErrorText,
    ErrorCode,
    ErrorKind,
    /// Message of the document, if it is an error as a whole.
    OwnText,
    /// Code of the document, if it is an error as a whole.
    OwnCode,
}

impl Fact {
    /// Returns the largest number of bytes that are kept of the value.
    pub(super) fn bytes_max(self) -> usize {
        match self {
            Self::Count(_) => COUNT_BYTES_MAX,
            Self::ErrorText | Self::OwnText => MESSAGE_BYTES_MAX,
            // Two quotes are around a word.
            _ => WORD_BYTES_MAX + 2,
        }
    }
}

/// Object or array that is read member by member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Root,
    Choices,
    Choice,
    /// Message of a choice, or what an event adds to it.
    ChoiceMessage,
    /// Object `response` in events of the Responses API.
    Response,
    /// Object `message` in Anthropic's `message_start`.
    Message,
    /// Object `delta` in Anthropic's events.
    Delta,
    /// Content of a message of Anthropic's API.
    Blocks,
    Block,
    Error,
    Usage,
    /// Details of a prompt's tokens.
    UsageDetails,
}

impl Node {
    /// Returns true for an array.
    pub(super) fn is_array(self) -> bool {
        matches!(self, Self::Choices | Self::Blocks)
    }

    /// Returns what the elements of an array are.
    pub(super) fn of_elements(self) -> Role {
        match self {
            Self::Choices => Role::enter(Self::Choice),
            Self::Blocks => Role::enter(Self::Block),
            _ => Role::IGNORED,
        }
    }
}

/// Meaning of a value that is no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Nothing,
    /// Generated content, unless the value is null, a number, or empty.
    Content,
    Fact(Fact),
}

/// Meaning of a member's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Role {
    /// Node that the value is if it is an object or an array.
    pub(super) node: Option<Node>,
    /// Meaning of any other value.
    pub(super) meaning: Meaning,
}

impl Role {
    /// Value that is skipped.
    pub(super) const IGNORED: Self = Self { node: None, meaning: Meaning::Nothing };
    const CONTENT: Self = Self { node: None, meaning: Meaning::Content };

    const fn enter(node: Node) -> Self {
        Self { node: Some(node), meaning: Meaning::Nothing }
    }

    const fn fact(fact: Fact) -> Self {
        Self { node: None, meaning: Meaning::Fact(fact) }
    }

    /// Usage object.
    pub(super) const USAGE: Self = Self::enter(Node::Usage);

    /// Error that is an object or a text.
    pub(super) const ERROR: Self =
        Self { node: Some(Node::Error), meaning: Meaning::Fact(Fact::ErrorText) };
}

/// Places of facts in a document of one API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schema {
    pub(super) api: ReplyApi,
    pub(super) form: Form,
    /// True if id and model are read.
    pub(super) wants_head: bool,
    /// True if content is looked for.
    pub(super) wants_content: bool,
}

impl Schema {
    /// Creates a schema by which all facts are read.
    pub(super) fn new(api: ReplyApi, form: Form) -> Self {
        Self { api, form, wants_head: true, wants_content: true }
    }

    /// Returns the meaning of the document as a whole.
    pub(super) fn of_document(&self) -> Role {
        let is_list = matches!(self.api, ReplyApi::Rerank | ReplyApi::Embeddings);
        let meaning = if is_list { Meaning::Content } else { Meaning::Nothing };
        Role { node: Some(Node::Root), meaning }
    }

    /// Returns the meaning of a member by its name, as it is written in the JSON. Names with
    /// escapes, which no engine writes, mean nothing.
    pub(super) fn role(&self, node: Node, name: &[u8]) -> Role {
        let role = match node {
            Node::Root => self.in_root(name),
            Node::Choice => match name {
                b"finish_reason" => Role::fact(Fact::Reason),
                b"text" | b"token_ids" => Role::CONTENT,
                b"delta" | b"message" if self.wants_content => Role::enter(Node::ChoiceMessage),
                _ => Role::IGNORED,
            },
            Node::ChoiceMessage if name == b"role" => Role::IGNORED,
            // Whatever else a message has was generated.
            Node::ChoiceMessage => Role::CONTENT,
            Node::Response => match name {
                b"status" => Role::fact(Fact::Status),
                b"output" => Role::CONTENT,
                b"error" => Role::ERROR,
                _ => Self::in_head(name),
            },
            Node::Message => match name {
                b"stop_reason" => Role::fact(Fact::Reason),
                b"content" => Role::enter(Node::Blocks),
                _ => Self::in_head(name),
            },
            Node::Delta if name == b"stop_reason" => Role::fact(Fact::Reason),
            Node::Delta | Node::Block => match name {
                // The name is that of a tool.
                b"text" | b"thinking" | b"partial_json" | b"data" | b"input" | b"name" => {
                    Role::CONTENT
                }
                _ => Role::IGNORED,
            },
            Node::Error => match name {
                b"message" => Role::fact(Fact::ErrorText),
                b"code" | b"status" | b"status_code" => Role::fact(Fact::ErrorCode),
                b"type" => Role::fact(Fact::ErrorKind),
                _ => Role::IGNORED,
            },
            Node::Usage => match name {
                b"prompt_tokens_details" | b"input_tokens_details" => {
                    Role::enter(Node::UsageDetails)
                }
                _ => Count::of(name).map_or(Role::IGNORED, |count| Role::fact(Fact::Count(count))),
            },
            Node::UsageDetails if name == b"cached_tokens" => {
                Role::fact(Fact::Count(Count::DetailsCached))
            }
            Node::UsageDetails | Node::Choices | Node::Blocks => Role::IGNORED,
        };
        match role.meaning {
            Meaning::Content if !self.wants_content => Role { meaning: Meaning::Nothing, ..role },
            Meaning::Fact(Fact::Id | Fact::Model) if !self.wants_head => Role::IGNORED,
            _ => role,
        }
    }

    fn in_head(name: &[u8]) -> Role {
        match name {
            b"id" => Role::fact(Fact::Id),
            b"model" => Role::fact(Fact::Model),
            b"usage" => Role::USAGE,
            _ => Role::IGNORED,
        }
    }

    fn in_root(&self, name: &[u8]) -> Role {
        let Self { api, form, .. } = *self;
        let is_event = form == Form::Event;
        match name {
            b"error" => Role::ERROR,
            b"type" if api.names_events() => Role::fact(Fact::Kind),
            b"object" => Role::fact(Fact::Object),
            b"code" => Role::fact(Fact::OwnCode),
            b"message" if is_event && api.has_messages() => {
                Role { node: Some(Node::Message), meaning: Meaning::Fact(Fact::OwnText) }
            }
            b"message" => Role::fact(Fact::OwnText),
            // Events of the Responses API have these in `response` alone.
            b"id" | b"model" | b"usage" if is_event && api == ReplyApi::Responses => Role::IGNORED,
            b"choices" if api.has_choices() => Role::enter(Node::Choices),
            b"response" if is_event && api.has_responses() => Role::enter(Node::Response),
            b"item" if is_event && api.has_responses() => Role::CONTENT,
            b"delta" if is_event && api.has_messages() => {
                Role { node: Some(Node::Delta), meaning: Meaning::Content }
            }
            b"delta" if is_event && api.has_responses() => Role::CONTENT,
            b"content_block" if is_event && api.has_messages() => Role::enter(Node::Block),
            b"status" if !is_event && api.has_responses() && api != ReplyApi::Other => {
                Role::fact(Fact::Status)
            }
            b"stop_reason" if !is_event && api == ReplyApi::Messages => Role::fact(Fact::Reason),
            b"content" if !is_event && api == ReplyApi::Messages => {
                Role { node: Some(Node::Blocks), meaning: Meaning::Content }
            }
            b"output" if !is_event && api.has_responses() => Role::CONTENT,
            b"data" if api == ReplyApi::Embeddings || api == ReplyApi::Rerank => Role::CONTENT,
            b"results" if api == ReplyApi::Rerank => Role::CONTENT,
            b"outputs" | b"text_output" if api == ReplyApi::KServeV2 => Role::CONTENT,
            _ => Self::in_head(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_member_that_repeats_the_request_has_facts() {
        for api in [ReplyApi::Chat, ReplyApi::Responses, ReplyApi::Messages, ReplyApi::Other] {
            for form in [Form::Whole, Form::Event] {
                for name in
                    ["metadata", "tools", "instructions", "prompt", "reasoning", "us\\u0061ge", ""]
                {
                    let role = Schema::new(api, form).role(Node::Root, name.as_bytes());
                    assert_eq!(role, Role::IGNORED, "{api:?} {form:?} {name}");
                }
            }
        }
    }

    #[test]
    fn usage_is_a_member_of_documents_responses_and_messages_alone() {
        let usage = |api, form, node| Schema::new(api, form).role(node, b"usage");
        let read = Role::USAGE;
        assert_eq!(usage(ReplyApi::Chat, Form::Event, Node::Root), read);
        assert_eq!(usage(ReplyApi::Responses, Form::Whole, Node::Root), read);
        assert_eq!(usage(ReplyApi::Responses, Form::Event, Node::Root), Role::IGNORED);
        assert_eq!(usage(ReplyApi::Responses, Form::Event, Node::Response), read);
        assert_eq!(usage(ReplyApi::Messages, Form::Event, Node::Message), read);
        for node in [Node::Choice, Node::Delta, Node::Block, Node::Error, Node::Choices] {
            assert_eq!(usage(ReplyApi::Other, Form::Event, node), Role::IGNORED, "{node:?}");
        }
    }

    #[test]
    fn facts_that_are_known_are_not_read_again() {
        let all = Schema::new(ReplyApi::Chat, Form::Event);
        let few = Schema { wants_head: false, wants_content: false, ..all };
        for (node, name) in [
            (Node::Root, "id"),
            (Node::Root, "model"),
            (Node::Choice, "delta"),
            (Node::Choice, "text"),
            (Node::ChoiceMessage, "content"),
        ] {
            assert_ne!(all.role(node, name.as_bytes()), Role::IGNORED, "{name}");
            assert_eq!(few.role(node, name.as_bytes()), Role::IGNORED, "{name}");
        }
        assert_eq!(few.role(Node::Choice, b"finish_reason"), Role::fact(Fact::Reason));
        assert_eq!(few.role(Node::Root, b"usage"), Role::USAGE);
    }

    #[test]
    fn what_is_kept_of_a_value_is_limited() {
        assert_eq!(Fact::Count(Count::Prompt).bytes_max(), u64::MAX.to_string().len());
        assert_eq!(Fact::Id.bytes_max(), 258);
        assert_eq!(Fact::ErrorText.bytes_max(), 512);
    }
}
