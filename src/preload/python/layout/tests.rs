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

/// The first words of `_PyRuntime` of 3.14.10, of 3.15.2, and of the free-threaded 3.13.12, 3.14.9 and 3.15.1, from
/// the cookie on.
const SAID: [(Release, &str); 5] = [
    (
        with_gil(14),
        "51251952 0 316616 784 808 225864 7280 7272 7344 7360 7408 7688 7672 7680 16 7784 0 7800 7792 7992 0 832 0 8 \
         16 72 152 160 232 32 88 8 0 56 80 74 64 0 216 112 120 128 136 68 52 96 104 208 0 16 8 416 24 88 168 40 32 16 \
         40 24 16 200 24 40 32 48 32 40 24 16 32 16 24 40 16 32 64 32 16 40 264 192 160 24 72 67",
    ),
    (
        with_gil(15),
        "51315440 0 346568 912 936 226240 7272 7264 7336 7352 7400 7592 7576 7584 16 7736 0 7752 7744 7944 0 888 0 8 \
         16 72 80 88 96 176 184 256 32 36 40 136 288 0 88 8 0 56 80 74 64 0 216 112 120 128 136 68 52 96 104 208 0 16 \
         8 424 24 88 168 32 288 944 888 40 32 16 40 24 16 200 24 40 32 48 32 40 24 16 32 16 24 40 16 32 64 32 16 40 \
         56 176 112 120 1120 104 160 24 72 67",
    ),
    (
        free(13),
        "51186928 1 328384 608 632 215616 7272 7264 7344 7400 7664 7648 7656 16 7760 0 7784 7776 304 0 8 16 72 152 \
         160 232 32 80 8 0 56 72 70 224 128 136 144 152 84 68 112 120 216 32 24 432 40 104 184 48 40 32 56 40 32 64 \
         48 56 40 32 48 32 40 56 32 48 80 48 32 56 248 200",
    ),
    (
        free(14),
        "51251696 1 362368 784 808 246720 7280 7272 7344 7360 7408 7712 7696 7704 16 7808 0 7832 7824 8024 17628 832 \
         0 8 16 72 152 160 232 32 88 8 0 56 80 78 64 72 240 128 136 144 152 84 68 112 120 232 224 32 24 432 40 104 \
         184 56 48 32 56 40 32 216 40 56 48 64 48 56 40 32 48 32 40 56 32 48 80 48 32 56 288 192 176 40 88 83",
    ),
    (
        free(15),
        "51315184 1 406016 912 936 247040 7272 7264 7336 7352 7400 7592 7576 7584 16 7736 0 7760 7752 7952 17564 888 \
         0 8 16 72 80 88 96 176 184 256 32 36 40 136 288 0 88 8 0 56 80 78 64 72 240 128 136 144 152 84 68 112 120 \
         232 224 32 24 440 40 104 184 48 304 968 904 56 48 32 56 40 32 216 40 56 48 64 48 56 40 32 48 32 40 56 32 48 \
         80 48 32 56 72 176 112 120 224 104 176 40 88 83 0 8",
    ),
];

const fn with_gil(minor: u32) -> Release {
    Release { minor, free_threaded: false }
}

const fn free(minor: u32) -> Release {
    Release { minor, free_threaded: true }
}

fn said(text: &str) -> [u64; WORDS] {
    let mut words = [0; WORDS];
    words[0] = u64::from_le_bytes(*b"xdebugpy");
    let numbers = text.split_whitespace().map(|word| word.parse().unwrap());
    words[1..].iter_mut().zip(numbers).for_each(|(word, number)| *word = number);
    words
}

#[test]
fn what_an_interpreter_says_is_what_its_row_says() {
    for ((release, text), row) in SAID.into_iter().zip([V3_14, V3_15, V3_13T, V3_14T, V3_15T]) {
        assert_eq!(choose(release, Some(&said(text))), Some(row), "{release:?}");
    }
}

#[test]
fn an_interpreter_that_contradicts_its_row_is_not_believed() {
    for (release, text) in SAID {
        let (words, row) = (said(text), choose(release, Some(&said(text))).unwrap());
        let (mut refused, mut without) = (0, 0);
        for at in 1..WORDS {
            for other in [words[at].wrapping_add(8), u64::MAX] {
                let mut words = words;
                words[at] = other;
                match choose(release, Some(&words)) {
                    None => refused += 1,
                    Some(layout)
                        if layout.objects != row.objects || layout.frame_variables != row.frame_variables =>
                    {
                        assert!(layout.objects.is_none());
                        without += 1;
                    }
                    Some(layout) => assert_eq!(Layout { collector: row.collector, ..layout }, row),
                }
            }
        }
        // 11 offsets, 13 where there are copies of code, the head of objects; 6 or 7 offsets, 1 where no objects are
        // known. Some sizes may be larger, not endless.
        let stacks = if row.copies.is_some() { 15 } else { 13 };
        let objects = if release.free_threaded { 1 } else { 6 };
        assert!(refused >= 2 * stacks && without >= 2 * objects, "{release:?}: {refused}, {without}");
        let mut words = words;
        words[2] ^= 1;
        assert_eq!(choose(release, Some(&words)), None, "the other build");
        words[2] ^= 1;
        words[1] += 1 << 16;
        assert_eq!(choose(release, Some(&words)), None, "another version");
    }
}

/// Where there is no GIL the collector's flag is not found by its shape: it is where the row says, or not known.
#[test]
fn a_flag_that_is_elsewhere_is_none() {
    for (release, text) in SAID.into_iter().filter(|(release, _)| release.free_threaded) {
        let known = |words: &[u64; WORDS]| choose(release, Some(words)).unwrap().collector.collecting;
        let mut words = said(text);
        assert!(known(&words).is_some());
        let interpreter_collector = if release.minor == 13 { 10 } else { 11 };
        words[interpreter_collector] += 8;
        assert_eq!(known(&words), None, "{release:?}");
    }
}

#[test]
fn every_version_has_a_row() {
    let rows = [V3_8, V3_8, V3_10, V3_11, V3_12, V3_13, V3_14, V3_15];
    assert_eq!(rows.len(), cpython::VERSIONS.count());
    let said_of = |release| SAID.into_iter().find(|said| said.0 == release).map(|s| said(s.1));
    for (minor, row) in cpython::VERSIONS.zip(rows) {
        let words = said_of(with_gil(minor));
        assert!(row.objects.is_some() && Links::of(&row).is_some(), "3.{minor}");
        assert!(minor == 13 || choose(with_gil(minor), words.as_ref()) == Some(row), "3.{minor}");
    }
    for minor in cpython::FREE_THREADED {
        let words = said_of(free(minor));
        assert!(
            choose(free(minor), words.as_ref()).is_some_and(|row| Links::of(&row).is_some()),
            "3.{minor}t"
        );
    }
}

#[test]
fn an_unknown_version_has_no_layout() {
    let words = said(SAID[1].1);
    assert_eq!(choose(with_gil(*cpython::VERSIONS.start() - 1), Some(&words)), None);
    assert_eq!(choose(with_gil(*cpython::VERSIONS.end() + 1), Some(&words)), None);
    assert_eq!(choose(free(*cpython::FREE_THREADED.start() - 1), Some(&words)), None);
    assert_eq!(choose(free(*cpython::FREE_THREADED.end() + 1), Some(&words)), None);
    assert_eq!(choose(with_gil(13), None), None);
    assert_eq!(choose(with_gil(15), Some(&[0; WORDS])), None);
    assert_eq!(choose(with_gil(14), Some(&[u64::MAX; WORDS])), None);
    assert_eq!(choose(free(14), Some(&[u64::MAX; WORDS])), None);
}
