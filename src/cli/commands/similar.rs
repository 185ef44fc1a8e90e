//! What somebody meant who wrote a word that is not known. Pure.

/// Returns what to say behind "it takes …": the word that is nearly the same, if there is one.
pub fn did_you_mean<'w>(written: &str, words: impl IntoIterator<Item = &'w str>) -> String {
    let near = words.into_iter().map(|word| (distance(written, word), word)).min();
    // A third of a word may be wrong, and never all of it.
    let is_near = |&(far, word): &(usize, &str)| far > 0 && far <= word.len().div_ceil(3) && far < word.len();
    near.filter(is_near).map_or_else(String::new, |(_, word)| format!("; did you mean `{word}`?"))
}

/// Counts the letters to change, to add or to take away that make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let best = (corner + usize::from(x != *y)).min(row[j] + 1).min(row[j + 1] + 1);
            corner = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_was_meant() {
        let words = ["auto", "optimizer", "loop", "backward", "range"];
        for (written, meant) in
            [("optimiser", "optimizer"), ("Loop", "loop"), ("backwards", "backward"), ("rang", "range")]
        {
            assert_eq!(did_you_mean(written, words), format!("; did you mean `{meant}`?"));
        }
        assert_eq!(did_you_mean("nvtx", words), "");
        assert_eq!(did_you_mean("", words), "");
    }
}
