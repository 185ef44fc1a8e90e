//! The rows, against what real interpreters say of themselves and what none does.

use super::*;
use leaktrace_core::cpython;

#[test]
fn versions() {
    assert_eq!(version("3.11.7 (main, Jan  1 2024) [GCC 12.2.0]"), Some((11, true)));
    assert_eq!(version("3.13.0+ (heads/3.13)"), Some((13, true)));
    assert_eq!(version("3.14.0a3 (main)"), Some((14, false)));
    assert_eq!(version("3.14.0rc2 (main)"), Some((14, true)));
    assert_eq!(version("2.7.18 (default)"), None);
    assert_eq!(version("nonsense"), None);
}

/// The first words of `_PyRuntime` of 3.14.10 and of 3.15.2, from the cookie on.
const SAID: [(u32, &str); 2] = [
    (
        14,
        "51251952 0 316616 784 808 225864 7280 7272 7344 7360 7408 7688 7672 7680 16 7784 0 7800 7792 7992 0 832 0 8 \
         16 72 152 160 232 32 88 8 0 56 80 74 64 0 216 112 120 128 136 68 52 96 104 208 0 16 8 416 24 88 168 40 32 16 \
         40 24 16 200 24 40 32 48 32 40 24 16 32 16 24 40 16 32 64 32 16 40 264 192 160 24 72 67",
    ),
    (
        15,
        "51315440 0 346568 912 936 226240 7272 7264 7336 7352 7400 7592 7576 7584 16 7736 0 7752 7744 7944 0 888 0 8 \
         16 72 80 88 96 176 184 256 32 36 40 136 288 0 88 8 0 56 80 74 64 0 216 112 120 128 136 68 52 96 104 208 0 16 \
         8 424 24 88 168 32 288 944 888 40 32 16 40 24 16 200 24 40 32 48 32 40 24 16 32 16 24 40 16 32 64 32 16 40 \
         56 176 112 120 1120 104 160 24 72 67",
    ),
];

fn said(text: &str) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = u64::from_le_bytes(*b"xdebugpy");
    let numbers = text.split_whitespace().map(|word| word.parse().unwrap());
    words[1..].iter_mut().zip(numbers).for_each(|(word, number)| *word = number);
    words
}

#[test]
fn what_an_interpreter_says_is_what_its_row_says() {
    for ((minor, text), row) in SAID.into_iter().zip([V3_14, V3_15]) {
        assert_eq!(choose(minor, Some(&said(text))), Some(row), "3.{minor}");
    }
}

#[test]
fn an_interpreter_that_contradicts_its_row_is_not_believed() {
    for (minor, text) in SAID {
        let (words, row) = (said(text), choose(minor, Some(&said(text))).unwrap());
        let (mut refused, mut without_objects) = (0, 0);
        for at in 1..WORDS {
            for other in [words[at].wrapping_add(8), u64::MAX] {
                let mut words = words;
                words[at] = other;
                match choose(minor, Some(&words)) {
                    None => refused += 1,
                    Some(layout) if layout.objects.is_none() => without_objects += 1,
                    Some(layout) => assert_eq!(Layout { collector: row.collector, ..layout }, row),
                }
            }
        }
        // 11 offsets, the head of objects; 6 or 7 offsets. Some sizes may be larger, not endless.
        assert!(refused >= 2 * 13 && without_objects >= 2 * 6, "3.{minor}: {refused}, {without_objects}");
        let mut words = words;
        words[2] = 1;
        assert_eq!(choose(minor, Some(&words)), None, "free-threaded");
        words[2] = 0;
        words[1] += 1 << 16;
        assert_eq!(choose(minor, Some(&words)), None, "another version");
    }
}

#[test]
fn every_version_has_a_row() {
    let rows = [V3_8, V3_8, V3_10, V3_11, V3_12, V3_13, V3_14, V3_15];
    assert_eq!(rows.len(), cpython::VERSIONS.count());
    for (minor, row) in cpython::VERSIONS.zip(rows) {
        let words = SAID.into_iter().find(|said| said.0 == minor).map(|s| said(s.1));
        assert!(row.objects.is_some() && Links::of(&row).is_some(), "3.{minor}");
        assert!(minor == 13 || choose(minor, words.as_ref()) == Some(row), "3.{minor}");
    }
}

#[test]
fn an_unknown_version_has_no_layout() {
    let words = said(SAID[1].1);
    assert_eq!(choose(*cpython::VERSIONS.start() - 1, Some(&words)), None);
    assert_eq!(choose(*cpython::VERSIONS.end() + 1, Some(&words)), None);
    assert_eq!(choose(13, None), None);
    assert_eq!(choose(15, Some(&[0; WORDS])), None);
    assert_eq!(choose(14, Some(&[u64::MAX; WORDS])), None);
}
