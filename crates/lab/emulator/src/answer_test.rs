use super::*;
use crate::text::{Conversation, TOKEN_BYTES, tokenize};
use crate::voice::{NATURAL_TOKENS_MAX, NATURAL_TOKENS_MIN};

fn prompt(text: &str) -> Vec<u32> {
    let mut conversation = Conversation::default();
    conversation.push("user", text);
    conversation.into_prompt()
}

#[test]
fn the_same_prompt_and_seed_give_the_same_answer_and_another_gives_another() {
    let answer =
        |text, seed| Answer::new(&prompt(text), seed, Length::Exactly(50)).text().to_owned();
    assert_eq!(answer("hello", 1), answer("hello", 1));
    assert_ne!(answer("hello", 1), answer("hello", 2));
    assert_ne!(answer("hello", 1), answer("hullo", 1));
}

#[test]
fn an_answer_is_ascii_words_of_exactly_its_tokens() {
    let answer = Answer::new(&prompt("x"), 7, Length::Exactly(100));
    assert_eq!(answer.text().len(), 400);
    assert!(answer.text().bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b' '));
    let pieces: String = (0..answer.tokens).map(|index| answer.piece(index)).collect();
    assert_eq!(pieces, answer.text());
    assert_eq!(answer.piece(answer.tokens), "");
}

#[test]
fn whoever_is_given_the_beginning_of_an_answer_says_the_rest() {
    for seed in 0..40 {
        let whole = Answer::new(&prompt("hi"), seed, Length::AtMost(300));
        assert_eq!(whole.finish, Finish::Stop);
        for said in 0..=whole.tokens {
            let (before, after) = whole.text().split_at(said as usize * TOKEN_BYTES);
            let mut conversation = Conversation::default();
            conversation.push("user", "hi");
            conversation.push("assistant", before);
            let open = conversation.into_open_prompt();
            let rest = Answer::new(&open, seed, Length::AtMost(300 - said));
            assert_eq!((rest.text(), rest.finish), (after, Finish::Stop), "{said}");
        }
    }
}

#[test]
fn so_does_a_prompt_that_tokens_do_not_fit() {
    let tokens = |text: &str| {
        let mut tokens = Vec::new();
        tokenize(text, &mut tokens);
        tokens
    };
    let whole = Answer::new(&tokens("Hello"), 3, Length::AtMost(200));
    for said in 1..whole.tokens {
        let (before, after) = whole.text().split_at(said as usize * TOKEN_BYTES);
        let longer = tokens(&format!("Hello{before}"));
        assert_eq!(longer.len(), 2 + said as usize);
        let rest = Answer::new(&longer, 3, Length::AtMost(200 - said));
        assert_eq!((rest.text(), rest.finish), (after, whole.finish), "{said}");
    }
}

#[test]
fn answers_differ_in_length() {
    let length = |seed| Answer::new(&prompt("x"), seed, Length::AtMost(10_000)).tokens;
    let mut lengths: Vec<u32> = (0..200).map(length).collect();
    lengths.sort_unstable();
    assert!(lengths[0] >= NATURAL_TOKENS_MIN && lengths[199] <= NATURAL_TOKENS_MAX);
    assert!(lengths[20] < 60 && lengths[180] > 180, "{lengths:?}");
}

#[test]
fn a_limit_cuts_the_answer_and_says_so() {
    let natural = Answer::new(&prompt("x"), 7, Length::AtMost(10_000));
    assert_eq!(natural.finish, Finish::Stop);
    assert!((NATURAL_TOKENS_MIN..=NATURAL_TOKENS_MAX).contains(&natural.tokens));
    assert!(natural.text().ends_with('.'));
    let cut = Answer::new(&prompt("x"), 7, Length::AtMost(5));
    assert_eq!((cut.tokens, cut.finish), (5, Finish::Length));
    assert_eq!(cut.text(), &natural.text()[..20]);
}

#[test]
fn the_next_turn_starts_with_the_tokens_of_this_turn_and_its_answer() {
    let first = prompt("what is a dam?");
    let answer = Answer::new(&first, 0, Length::AtMost(64));
    let mut cached = first.clone();
    cached.extend(answer.to_tokens());

    let mut second = Conversation::default();
    second.push("user", "what is a dam?");
    second.push("assistant", answer.text());
    second.push("user", "why?");
    assert!(second.tokens.starts_with(&cached));

    let mut stored = Conversation::answered(first, answer.text());
    stored.push("user", "why?");
    assert_eq!(stored, second);
}

#[test]
fn a_stop_sequence_ends_the_answer_before_it_after_the_token_that_completes_it() {
    let plain = Answer::new(&prompt("x"), 7, Length::Exactly(20));
    let stop = plain.text()[9..13].to_owned();
    let stopped = plain.clone().stopped_at(&[stop.clone(), "zzz".to_owned()], false);
    assert_eq!(stopped.text(), &plain.text()[..9]);
    assert_eq!((stopped.tokens, stopped.finish), (4, Finish::Stop));
    assert_eq!(stopped.stop.as_deref(), Some(stop.as_str()));
    let pieces: Vec<_> = (0..4).flat_map(|token| stopped.pieces(token)).collect();
    let said: String =
        pieces.iter().filter(|(part, _)| *part == AnswerPart::Said).map(|p| p.1).collect();
    assert_eq!(said, stopped.text());
    assert_eq!(stopped.to_tokens(), plain.to_tokens()[..4]);
    let kept = plain.clone().stopped_at(&[stop], true);
    assert_eq!(kept.text(), &plain.text()[..13]);
    assert_eq!(plain.clone().stopped_at(&["zzz".to_owned()], true), plain);
}

#[test]
fn pieces_of_a_prescribed_text_never_split_a_character() {
    let parts =
        vec![(AnswerPart::Unsaid, "<é>".to_owned()), (AnswerPart::Said, "größe ☂☂☂".to_owned())];
    let whole = Answer::of_parts(parts.clone(), "", 100);
    assert_eq!((whole.text(), whole.finish), ("größe ☂☂☂", Finish::Stop));
    assert_eq!(whole.tokens as usize, whole.to_tokens().len());
    let said = |answer: &Answer| -> String {
        let pieces = (0..answer.tokens).flat_map(|token| answer.pieces(token));
        pieces.filter(|(part, _)| *part == AnswerPart::Said).map(|(_, text)| text).collect()
    };
    assert_eq!(said(&whole), whole.text());
    for most in 1..whole.tokens {
        let cut = Answer::of_parts(parts.clone(), "", most);
        assert_eq!((cut.tokens, cut.finish), (most, Finish::Length));
        assert_eq!(said(&cut), cut.text());
        assert!(whole.text().starts_with(cut.text()));
    }
}

#[test]
fn whoever_is_given_the_beginning_of_a_prescribed_text_says_the_rest() {
    let parts = vec![(AnswerPart::Said, "{\"a\":1}".to_owned())];
    let rest = Answer::of_parts(parts.clone(), "{\"a", 10);
    assert_eq!(rest.text(), "\":1}");
    assert_eq!(Answer::of_parts(parts, "other", 10).text(), "{\"a\":1}");
}
