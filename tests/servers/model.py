"""Writes a tiny model that a real server loads: the shape of a Llama, and a tokenizer of its own.

Run with the Python of the model servers: `python model.py FOLDER`. The weights are random, from a
fixed seed: what the model says is nonsense, but it is the same nonsense on every server, and it
depends on the whole prompt.
"""

import sys
from pathlib import Path

import torch
from tokenizers import ByteLevelBPETokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
# Longer than any prompt of this test with its answer.
CONTEXT = 2048
BEGIN, END, TURN = "<s>", "</s>", "<|turn|>"
# Ordinary English words: the prompts of the test are made of them, so each is a token or two.
WORDS = Path(__file__).with_name("words.txt").read_text().split()
CHAT = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}\n"
    "{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
SHAPE = {
    # Slow enough on a CPU that a long answer takes seconds.
    "hidden_size": 384,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT,
    # Ten times the usual spread: the model is then sure of its next token, so that a difference in
    # the last bit between two servers does not change it.
    "initializer_range": 0.2,
}
SEED = 7


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    tokenizer.save_pretrained(folder)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(SEED)
    model = LlamaForCausalLM(LlamaConfig(**SHAPE, **ends))
    model.to(torch.bfloat16).save_pretrained(folder)


def train() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows the words of the test."""
    # Each word stands beside different ones, so that pairs are learnt within words.
    texts = [f"{word} {other}" for word in WORDS for other in WORDS[::17]]
    bpe = ByteLevelBPETokenizer()
    special = [BEGIN, END, TURN]
    bpe.train_from_iterator(texts, vocab_size=VOCABULARY, special_tokens=special)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe._tokenizer,
        bos_token=BEGIN,
        eos_token=END,
        chat_template=CHAT,
        model_max_length=CONTEXT,
    )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
