//! Whether a compiled function trains, seen by what goes into it and comes out, since no call says so: it is given its
//! own results again (parameters, the state of an optimizer), or has for the same parameters, call after call, results of
//! their sizes (gradients). One that computes something of its inputs only does neither. Pure: knows no table and no lock.

use std::ops::Range;

/// Calls after the first in which it must show.
const CALLS: u8 = 4;
/// Arrays that parameters are, at least; or one of so many bytes. What is given back by itself is mostly a sum, a key or a
/// count.
const ARRAYS: usize = 2;
const SINGLE: u64 = 256;
/// All data of a training has at most so many times the bytes of the parameters.
const DATA: u64 = 16;

/// An input as far as it was recorded: by its number among all that was made, and its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input {
    pub number: u32,
    pub bytes: u64,
}

/// What is known of one function: it is another executable for each shape of its inputs.
#[derive(Debug)]
pub enum Training {
    Open { calls: u8, inputs: Vec<Option<Input>>, made: Range<u32> },
    Known(bool),
}

impl Default for Training {
    fn default() -> Training {
        Training::Open { calls: 0, inputs: Vec::new(), made: 0..0 }
    }
}

impl Training {
    /// Returns whether it trains, once that is known.
    pub fn known(&self) -> Option<bool> {
        match self {
            Training::Known(trains) => Some(*trains),
            Training::Open { .. } => None,
        }
    }

    /// Takes in a call: its inputs, the bytes of its outputs, and the numbers that these got. Returns whether it trains.
    pub fn call(&mut self, inputs: &[Option<Input>], outputs: &[u64], made: Range<u32>) -> bool {
        let Training::Open { calls, inputs: before, made: own } = self else {
            return self.known() == Some(true);
        };
        if *calls > 0 && trains(inputs, outputs, before, own) {
            *self = Training::Known(true);
            return true;
        }
        *self = match *calls {
            CALLS => Training::Known(false),
            calls => Training::Open { calls: calls + 1, inputs: inputs.to_vec(), made },
        };
        false
    }
}

/// Returns whether a call trains, by what the call before had and made.
fn trains(inputs: &[Option<Input>], outputs: &[u64], before: &[Option<Input>], own: &Range<u32>) -> bool {
    let (mut returned, mut kept, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for (input, earlier) in inputs.iter().zip(before) {
        let Some(input) = input else { continue };
        let to = match earlier {
            _ if own.contains(&input.number) => &mut returned,
            Some(earlier) if earlier == input => &mut kept,
            _ => &mut others,
        };
        to.push(input.bytes);
    }
    let sum = |of: &[u64]| of.iter().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
    let most = |of: &[u64], all: u64| of.len() >= ARRAYS && sum(of) > all / 2;
    // What is as large as the other input may be added to it.
    if let [one] = returned[..]
        && one >= SINGLE
        && one > sum(&kept)
        && !others.is_empty()
        && !(outputs.len() == 1 && others.contains(&one))
    {
        return true;
    }
    if most(&returned, sum(&returned).saturating_add(sum(&kept))) {
        return true;
    }
    // All of the data is there in each call, and a loss beside what is given again. A simulation has nothing beside its
    // state; decoding has another token each time, or a model that is far larger than what it adds to.
    let is_all_there =
        others.is_empty() && !kept.is_empty() && sum(&kept) <= sum(&returned).saturating_mul(DATA);
    if is_all_there && sum(&returned) >= SINGLE && outputs.len() > returned.len() {
        return true;
    }
    // A result as large as a batch may be one as large as a parameter by chance.
    let mut results = outputs.to_vec();
    let mut take = |bytes: &u64| match results.iter().position(|result| result == bytes) {
        Some(at) => {
            results.swap_remove(at);
            true
        }
        None => false,
    };
    others.retain(|bytes| !take(bytes));
    let all = sum(&kept);
    kept.retain(take);
    most(&kept, all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program of calls: each names its inputs by what made them (`p3`: the third that was made), and is given the
    /// bytes of its outputs.
    struct Calls {
        next: u32,
        training: Training,
    }

    impl Calls {
        fn new() -> Calls {
            Calls { next: 100, training: Training::default() }
        }

        fn fresh(&mut self, bytes: u64) -> Input {
            self.next += 1;
            Input { number: self.next, bytes }
        }

        fn call(&mut self, inputs: &[Input], outputs: &[u64]) -> (bool, Vec<Input>) {
            let first = self.next + 1;
            let made: Vec<Input> = outputs.iter().map(|&bytes| self.fresh(bytes)).collect();
            let inputs: Vec<Option<Input>> = inputs.iter().copied().map(Some).collect();
            (self.training.call(&inputs, outputs, first..self.next + 1), made)
        }
    }

    #[test]
    fn an_update_of_parameters_trains() {
        let mut calls = Calls::new();
        let mut model = vec![calls.fresh(8192), calls.fresh(4096)];
        let trained = (0..3).map(|_| {
            let x = calls.fresh(65536);
            let (trained, made) = calls.call(&[model[0], model[1], x], &[8192, 4096, 4]);
            model = made[..2].to_vec();
            trained
        });
        assert_eq!(trained.collect::<Vec<_>>(), [false, true, true]);
    }

    /// Of one array, beside a batch; not what is added to, nor a key.
    #[test]
    fn an_update_of_a_single_array_trains() {
        let trained = |own: u64, other: u64, beside: &[u64]| {
            let mut calls = Calls::new();
            let mut state = calls.fresh(own);
            (0..3).any(|_| {
                let other = calls.fresh(other);
                let (trained, made) = calls.call(&[state, other], &[&[own], beside].concat());
                state = made[0];
                trained
            })
        };
        assert!(trained(32_768, 65_536, &[]) && trained(32_768, 32_768, &[4]));
        assert!(trained(1024, 65_536, &[2048]));
        assert!(!trained(32_768, 32_768, &[]) && !trained(8, 4, &[]) && !trained(64, 4096, &[4]));
    }

    /// With all data in each call, which is larger than the parameters.
    #[test]
    fn an_update_by_the_same_data_trains() {
        let trained = |beside: &[u64], other: Option<u64>| {
            let mut calls = Calls::new();
            let data = [calls.fresh(32_768), calls.fresh(16_384)];
            let mut model = vec![calls.fresh(8192), calls.fresh(512)];
            (0..3).any(|_| {
                let others: Vec<Input> = other.into_iter().map(|bytes| calls.fresh(bytes)).collect();
                let (trained, made) =
                    calls.call(&[&model[..], &data, &others].concat(), &[&[8192, 512], beside].concat());
                model = made[..2].to_vec();
                trained
            })
        };
        assert!(trained(&[4], None));
        // A simulation; decoding.
        assert!(!trained(&[], None) && !trained(&[4], Some(4)));
    }

    /// Its gradients are inputs of the sizes of the results.
    #[test]
    fn an_update_by_gradients_from_elsewhere_trains() {
        let mut calls = Calls::new();
        let mut model = vec![calls.fresh(8192), calls.fresh(4096)];
        let mut trained = false;
        for _ in 0..2 {
            let grads = [calls.fresh(8192), calls.fresh(4096)];
            let (now, made) = calls.call(&[model[0], model[1], grads[0], grads[1]], &[8192, 4096]);
            (trained, model) = (now, made);
        }
        assert!(trained);
    }

    #[test]
    fn gradients_of_the_same_parameters_train() {
        let mut calls = Calls::new();
        let model = [calls.fresh(8192), calls.fresh(4096)];
        let each = |_| {
            let x = calls.fresh(8192);
            calls.call(&[model[0], model[1], x], &[4, 8192, 8192, 4096]).0
        };
        assert_eq!((0..3).map(each).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn what_computes_of_its_inputs_does_not_train() {
        // Inference: the result is as large as the batch, and as one of the parameters.
        let mut calls = Calls::new();
        let model = [calls.fresh(8192), calls.fresh(8192)];
        for _ in 0..10 {
            let x = calls.fresh(8192);
            assert!(!calls.call(&[model[0], model[1], x], &[8192]).0);
        }
        // Images and labels that are changed, each time others.
        let mut calls = Calls::new();
        for _ in 0..10 {
            let (images, labels) = (calls.fresh(65536), calls.fresh(512));
            assert!(!calls.call(&[images, labels], &[65536, 512]).0);
        }
        // A cache of keys and values that decoding is given again, beside the parameters.
        let mut calls = Calls::new();
        let model = [calls.fresh(1 << 20), calls.fresh(1 << 20)];
        let mut cache = vec![calls.fresh(4096), calls.fresh(4096)];
        for _ in 0..10 {
            let (trained, made) = calls.call(&[model[0], model[1], cache[0], cache[1]], &[4096, 4096, 128]);
            assert!(!trained);
            cache = made[..2].to_vec();
        }
        // By now it is known: nothing that comes later counts.
        assert!(matches!(calls.training, Training::Known(false)));
    }
}
