//! Judgement of replies that ended in good order.

use super::api::ReplyApi;
use super::facts::ReplyFacts;
use super::finish::Finish;
use super::reply_error::ReplyError;

/// Judgement of a reply whose connection ended in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyVerdict<'f> {
    /// The reply is whole.
    Complete,
    /// The engine gave the request up before the content was complete.
    Aborted,
    /// The reply has content, but the engine gave no reason why it ended.
    Unfinished,
    /// The reply has no token.
    Empty,
    /// The reply reports an error.
    Failed(&'f ReplyError),
}

impl ReplyFacts {
    /// Judges a reply with a status of success, once it has ended in good order. Only APIs that
    /// generate content can be unfinished or empty.
    ///
    /// A stream with several choices counts as finished with the first of them. Engines show an
    /// abort by `finish_reason` in chats and completions only. In Anthropic's messages, vLLM gives no
    /// reason then, and SGLang a normal one. In the Responses API, vLLM's status is `cancelled` for
    /// models with the harmony format and `completed` for others, and SGLang's is `failed`.
    ///
    /// `is_known_engine`: the engine is known to give a reason for the end of each answer. Other servers
    /// may answer in forms of their own, so that what their replies lack is no failure.
    #[must_use]
    pub fn verdict(&self, api: ReplyApi, is_known_engine: bool) -> ReplyVerdict<'_> {
        match self.strict_verdict(api) {
            ReplyVerdict::Unfinished | ReplyVerdict::Empty if !is_known_engine => {
                ReplyVerdict::Complete
            }
            verdict => verdict,
        }
    }

    fn strict_verdict(&self, api: ReplyApi) -> ReplyVerdict<'_> {
        // The state of an older response is not that of this reply.
        if api == ReplyApi::StoredResponse {
            return ReplyVerdict::Complete;
        }
        if let Some(error) = &self.error {
            return ReplyVerdict::Failed(error);
        }
        let generated = self.usage.map(|usage| usage.completion_tokens);
        match self.finish {
            Some(Finish::Aborted) => ReplyVerdict::Aborted,
            _ if !api.generates() => ReplyVerdict::Complete,
            // A model may end its answer at once, which is a token, too.
            Some(Finish::Normal) if !self.has_content && generated == Some(0) => {
                ReplyVerdict::Empty
            }
            Some(Finish::Normal) => ReplyVerdict::Complete,
            None if self.is_unreadable => ReplyVerdict::Complete,
            None if self.has_content => ReplyVerdict::Unfinished,
            // Engines name an abort in these APIs, so a server that counts tokens has answered, in
            // whatever form.
            None if self.is_whole
                && matches!(api, ReplyApi::Chat | ReplyApi::Completions)
                && generated > Some(0) =>
            {
                ReplyVerdict::Complete
            }
            None => ReplyVerdict::Empty,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Usage;

    const NORMAL: Option<Finish> = Some(Finish::Normal);
    const ABORTED: Option<Finish> = Some(Finish::Aborted);
    const ALL: [ReplyApi; 9] = [
        ReplyApi::Chat,
        ReplyApi::Completions,
        ReplyApi::Responses,
        ReplyApi::Messages,
        ReplyApi::StoredResponse,
        ReplyApi::Embeddings,
        ReplyApi::Rerank,
        ReplyApi::KServeV2,
        ReplyApi::Other,
    ];

    fn facts(finish: Option<Finish>, has_content: bool, tokens: Option<u64>) -> ReplyFacts {
        let usage = tokens.map(|completion_tokens| Usage { completion_tokens, ..Usage::default() });
        ReplyFacts { finish, has_content, usage, is_done: true, ..ReplyFacts::default() }
    }

    #[track_caller]
    fn check(facts: &ReplyFacts, expected: ReplyVerdict<'_>) {
        for api in &ALL[..4] {
            assert_eq!(facts.verdict(*api, true), expected, "{api:?} {facts:?}");
        }
    }

    #[test]
    fn a_generated_reply_needs_content_and_a_reason_for_its_end() {
        check(&facts(NORMAL, true, Some(3)), ReplyVerdict::Complete);
        check(&facts(NORMAL, true, None), ReplyVerdict::Complete);
        check(&facts(None, true, Some(3)), ReplyVerdict::Unfinished);
        check(&facts(None, false, Some(3)), ReplyVerdict::Empty);
        check(&facts(None, false, None), ReplyVerdict::Empty);
    }

    #[test]
    fn a_whole_reply_whose_tokens_are_counted_is_an_answer_in_a_form_that_is_not_known() {
        let whole = |tokens| ReplyFacts { is_whole: true, ..facts(None, false, tokens) };
        for api in &ALL[..2] {
            assert_eq!(whole(Some(1)).verdict(*api, true), ReplyVerdict::Complete);
        }
        let aborted = whole(Some(1));
        assert_eq!(aborted.verdict(ReplyApi::Messages, true), ReplyVerdict::Empty);
        check(&whole(Some(0)), ReplyVerdict::Empty);
        check(&whole(None), ReplyVerdict::Empty);
    }

    #[test]
    fn an_answer_that_the_model_ends_at_once_is_complete() {
        check(&facts(NORMAL, false, Some(1)), ReplyVerdict::Complete);
        check(&facts(NORMAL, false, None), ReplyVerdict::Complete);
        check(&facts(NORMAL, false, Some(0)), ReplyVerdict::Empty);
        check(&facts(NORMAL, true, Some(0)), ReplyVerdict::Complete);
    }

    #[test]
    fn an_abort_is_one_with_and_without_content() {
        check(&facts(ABORTED, true, Some(5)), ReplyVerdict::Aborted);
        check(&facts(ABORTED, false, Some(0)), ReplyVerdict::Aborted);
    }

    #[test]
    fn what_is_missing_is_held_against_known_engines_only() {
        for api in &ALL[..4] {
            for has_content in [false, true] {
                let facts = facts(None, has_content, Some(0));
                assert_eq!(facts.verdict(*api, false), ReplyVerdict::Complete, "{api:?}");
            }
            assert_eq!(facts(ABORTED, true, None).verdict(*api, false), ReplyVerdict::Aborted);
        }
    }

    #[test]
    fn an_error_outweighs_all_else() {
        let error = ReplyError { status: Some(500), ..ReplyError::default() };
        for finish in [None, NORMAL, ABORTED] {
            let facts = ReplyFacts { error: Some(error.clone()), ..facts(finish, true, None) };
            check(&facts, ReplyVerdict::Failed(&error));
        }
    }

    #[test]
    fn a_reply_that_cannot_be_read_is_not_judged_by_what_is_missing() {
        check(
            &ReplyFacts { is_unreadable: true, ..facts(None, false, None) },
            ReplyVerdict::Complete,
        );
        let aborted = ReplyFacts { is_unreadable: true, ..facts(ABORTED, false, None) };
        check(&aborted, ReplyVerdict::Aborted);
    }

    #[test]
    fn other_apis_are_complete_unless_they_fail() {
        for api in &ALL[5..] {
            let (none, aborted) = (facts(None, false, None), facts(ABORTED, true, None));
            assert_eq!(none.verdict(*api, true), ReplyVerdict::Complete, "{api:?}");
            assert_eq!(aborted.verdict(*api, true), ReplyVerdict::Aborted, "{api:?}");
        }
        let stored =
            ReplyFacts { error: Some(ReplyError::default()), ..facts(ABORTED, true, None) };
        assert_eq!(stored.verdict(ReplyApi::StoredResponse, true), ReplyVerdict::Complete);
    }

    proptest! {
        #[test]
        fn no_reply_without_a_reason_is_complete(
            at in 0..4_usize, has_content in any::<bool>(), tokens in any::<Option<u64>>(),
        ) {
            let facts = facts(None, has_content, tokens);
            prop_assert_ne!(facts.verdict(ALL[at], true), ReplyVerdict::Complete);
        }
    }
}
