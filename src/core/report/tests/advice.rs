//! Who is named as a finding's holder, and what would fix it.

use super::*;

/// Returns a leak of one block per step with these holders, of 20 blocks each, most first.
pub(super) fn held(paths: &[&str], block: f64) -> Finding {
    let report = report(&ledger(200, true), End::Clean, None).expect("no step asked for");
    let mut f = report.findings[0].clone();
    f.bytes_per_step = block;
    let of = |path: &&str| Holder {
        path: path.to_string(),
        bytes: 20,
        blocks: 20,
        step: 1,
        retention: Some("unbounded"),
        max_entries: None,
    };
    f.holders = paths.iter().map(of).collect();
    f.holders_unknown = None;
    f
}

#[test]
fn advice_is_for_what_holds() {
    let number = "store `.item()` (if it is one number) or `.detach().cpu()` in `a[*]` in __main__ instead, or remove entries";
    for (block, paths, words) in [
        (512.0, &["__main__.a[*]"][..], number),
        (513.0, &["__main__.a[*]"], "store `.detach().cpu()` (or `.item()`, if it is one number) in `a[*]`"),
        (
            512.0,
            &["__main__.x.grad_fn → … saved by MulBackward0"],
            "`.detach()` what `x` in __main__ holds: ",
        ),
        (
            512.0,
            &["__main__.a.grad_fn → saved by B", "__main__.c.grad_fn → saved by B"],
            "`.detach()` what `a` in __main__ and `c` in __main__ hold: a tensor with its graph keeps all that the graph saved",
        ),
        (
            512.0,
            &[
                "f() local `net`.state[1].grad_fn → B",
                "f() local `loss`.grad_fn → B",
                "f() local `y`.grad_fn → B",
            ],
            "`.detach()` what `net.state` in f() holds: a tensor with its graph keeps all that the graph saved",
        ),
        (512.0, &["garbage waiting for the cyclic collector: A → A"], "break the reference cycle ("),
        (
            512.0,
            &[
                "garbage waiting for the cyclic collector: frame → retry() local `last` → E.__traceback__ → traceback → frame",
            ],
            "set `last` in retry() to None once the exception is handled: its traceback keeps the frame that has this variable, or",
        ),
        (
            512.0,
            &[
                "garbage waiting for the cyclic collector: getset_descriptor.__objclass__ → type.__dict__ → getset_descriptor",
            ],
            "make the class once, outside of the loop: every class is in a reference cycle with its own parts, or",
        ),
        (
            512.0,
            &["__main__.net → .bias, .weight", "__main__.p.grad.grad_fn → … saved by MulBackward0"],
            "call `torch.autograd.grad(…, create_graph=True)`",
        ),
        (
            512.0,
            &["__main__.outer._exit_callbacks[*][1] → closure variable `args`[0]"],
            "close the `ExitStack` in each step",
        ),
        (512.0, &["f() local `x`"], "the calls that have `x` in f() are still running: "),
        (
            512.0,
            &["__main__.a[*] → coroutine → f() local `x`"],
            "let the generator or coroutine end, or close it",
        ),
        (
            512.0,
            &["__main__.add → closure variable `a`[*] → reader() local `x`"],
            "let the generator or coroutine end, or close it",
        ),
        (
            512.0,
            &["f() local `x`[*]"],
            "store `.item()` (if it is one number) or `.detach().cpu()` in `x[*]` in f()",
        ),
        (512.0, &["__main__.w → its hooks[*] → default of argument `m`"], "remove the hook "),
        (
            512.0,
            &["__main__.runs[*].opt.state[<Tensor>][*]", "__main__.o.param_groups[0]"],
            "drop the models and ",
        ),
        (
            512.0,
            &["__main__.opt.param_groups[*]['params'][*]"],
            "remove the parameter groups that are no longer needed",
        ),
        // Nothing else has variables as keys, and values for each.
        (
            8192.0,
            &["f() local `g`.opt.state[*][*]", "f() local `g`.opt.state → its keys"],
            "remove the entries of parameters that were replaced from `state`",
        ),
        // Under keys of which the types are known only there are many optimizers.
        (
            8192.0,
            &["__main__.runs[<float>].opt.state[*][*]", "__main__.runs[<float>].opt.state → its keys"],
            "drop the models ",
        ),
        // What one parameter has many of is none of the optimizer's.
        (512.0, &["__main__.opt.param_groups[0]['params'][0]._seen[*]"], "store `.item()` "),
        (
            512.0,
            &["__main__.opt.state[<Parameter>]['hist'][*]", "__main__.opt.param_groups[0]"],
            "store `.item()` (if it is one number) or `.detach().cpu()` in `opt",
        ),
        // Not only optimizers have a state.
        (512.0, &["__main__.env.state[*]"], "store `.item()` "),
        (
            512.0,
            &["__main__.fs[*] → closure variable `x`"],
            "pass this as an argument, or do not keep the function",
        ),
        (512.0, &["__main__.fs[*] → closure variable `cache`[*]"], "pass this as an argument, or do not "),
        (
            512.0,
            &["__main__.fs[0] → closure variable `a`[*]"],
            "remove entries that are no longer needed from `fs[0]`",
        ),
        (512.0, &["__main__.f → closure variable `a`[*]"], "store `.item()` "),
        (512.0, &["__main__.its[*] → locals of g()"], "let the generator or coroutine end, or close it"),
        (
            512.0,
            &["__main__.opt.param_groups[0]['params'][0] → its hooks[*] → closure variable `mask`"],
            "remove the hook once it is no longer needed",
        ),
        (512.0, &["__main__.f → lru_cache[*]"], "give the `lru_cache` of `f` in __main__ a bound (`maxsize`"),
        (
            512.0,
            &["__main__.f → lru_cache[*] → closure variable `x`"],
            "give the `lru_cache` of `f` in __main__ a bound",
        ),
        (512.0, &["__main__.m.kv_cache[*][*]"], "give `m.kv_cache[*]` in __main__ a bound"),
        (512.0, &["f() local `cache`[*]"], "give `cache` in f() a bound"),
        (
            512.0,
            &["__main__.cache.requests[*].x"],
            "remove entries that are no longer needed from `cache.requests` in __main__, or store `.item()` ",
        ),
        (512.0, &["__main__.requests[*].cache[*]"], "store `.item()` "),
        (512.0, &["__main__.waiting[*]._result"], "drop each task or future once its result is taken ("),
        (512.0, &["__main__.background[*].result()"], "drop each task or future once its result is taken ("),
        (512.0, &["__main__.log.handlers[0].buffer[*].args[1]"], "log a number ("),
        (
            512.0,
            &["__main__.search.root.parent….children[*]"],
            "cut the chain where older objects are no longer needed (`parent = None`)",
        ),
        (512.0, &["__main__.samples[1]…[0]"], "store `.item()` "),
        (
            8192.0,
            &["f() local `energy` → closure variable `f`… → closure variable `c`"],
            "do not let each new function call the one before it",
        ),
        (512.0, &["__main__.metric.val_metrics.mrr[*]"], "store `.item()` "),
        (
            512.0,
            &["__main__.trainer.logged_metrics['loss'].grad_fn → saved by B"],
            "log a number (`.item()`), not",
        ),
        (
            8192.0,
            &["__main__.memory.logs[*].grad_fn → saved by MulBackward0"],
            "store `.detach()` in `memory.logs[*]` in __main__ instead, or remove entries that are no longer needed: ",
        ),
        (
            512.0,
            &["weakref.finalize._registry[*].args[0]"],
            "release the objects that have a finalizer once they are no longer used, or call it ",
        ),
        (512.0, &["__main__.batches → itertools.cycle[*][*]"], "restart the loop over the data instead: "),
        (512.0, &["f() local `it` → itertools.tee[*]"], "advance or drop the iterators of `itertools.tee` "),
        (
            512.0,
            &["__main__.targets → its keys", "__main__.targets[*]"],
            "use a key that compares by value in `targets` in __main__ (an `int`, `bytes`): ",
        ),
        (
            8192.0,
            &["__main__.objects[*] → …"],
            "remove entries that are no longer needed from `objects` in __main__",
        ),
        (
            512.0,
            &["__main__.jobs[*] → .x, .result"],
            "remove entries that are no longer needed from `jobs` in __main__",
        ),
        (
            512.0,
            &["__main__.fs[*] → closure variables `x`, `y`"],
            "pass this as an argument, or do not keep the function",
        ),
        (
            512.0,
            &["__main__.snaps.models[*][1][1] → …"],
            "remove entries that are no longer needed from `snaps.models` in __main__",
        ),
        (
            512.0,
            &["f() local `history`[*]['cache'].layers[*] → …"],
            "remove entries that are no longer needed from `history` in f()",
        ),
        (
            512.0,
            &["__main__.out_*"],
            "delete those of `out_*` in __main__ that are no longer needed, or store ",
        ),
    ] {
        let told = wording::advice(&held(paths, block)).expect("a leak has advice");
        assert!(told.starts_with(words), "{paths:?}: {told}");
    }
}

#[test]
fn advice_is_in_the_words_of_the_framework() {
    for (by, path, words) in [
        ("PJRT", "__main__.a[*]", "store `np.array(x)` in `a[*]` in __main__ instead, or "),
        ("PJRT", "__main__.p[*].opaque_residuals[*]", "do not keep what `jax.vjp` returned"),
        ("BFCAllocator", "__main__.a[*]", "store `.numpy()` in `a[*]` in __main__ instead, or "),
        ("BFCAllocator", "__main__.vs[*]._handle", "make one variable and `assign` to it, "),
    ] {
        let mut f = held(&[path], 4096.0);
        f.sites[0].entry_point = Some(by.to_owned());
        let told = wording::advice(&f).expect("a leak has advice");
        assert!(told.starts_with(words), "{path}: {told}");
    }
}

#[test]
fn advice_on_a_queue_that_backs_up() {
    let mut f = held(&["__main__.waiting[*]"], 4096.0);
    f.ever_later = true;
    let told = wording::advice(&f).expect("a leak has advice");
    assert!(told.starts_with("empty `waiting` in __main__ as fast as it is filled"), "{told}");
}

#[test]
fn advice_on_pinned_memory_and_on_bounds_that_are_too_large() {
    let mut f = held(&["__main__.a[*]"], 4096.0);
    f.layer = "host";
    let pinned = "reuse one pinned buffer, or keep a copy that is not pinned in `a[*]` in __main__";
    assert_eq!(wording::advice(&f).as_deref(), Some(pinned));
    let mut f = held(&["__main__.a[*]"], 4096.0);
    f.bound_bytes = Some(1 << 50);
    let told = wording::advice(&f).expect("a leak has advice");
    assert!(
        told.starts_with("give `a[*]` in __main__ a smaller bound (`maxlen`), or store `.detach()"),
        "{told}"
    );
}

#[test]
fn what_cannot_grow_is_not_named_where_something_can() {
    let told = |kind, blocks: u64, all: &[(&str, Option<&'static str>)]| {
        let mut f = held(&all.iter().map(|(path, _)| *path).collect::<Vec<_>>(), 512.0);
        f.kind = kind;
        for (h, (_, retention)) in f.holders.iter_mut().zip(all) {
            h.retention = *retention;
        }
        (f.holders[0].blocks, f.holders[0].bytes) = (blocks, blocks);
        (wording::held_by_whom(&f), wording::advice(&f))
    };
    let pins = ("__main__.store.pins[*]", Some("unbounded"));
    let recent = ("__main__.store.recent[*]", Some("bounded"));
    let pinned = Some("held by `store.pins[*]` in __main__".to_owned());
    for other in [recent, ("__main__.store.last[*]", None)] {
        for all in [[pins, other], [other, pins]] {
            let (whom, fix) = told(Kind::Leak, 20, &all);
            assert_eq!(whom, pinned);
            assert!(fix.is_some_and(|fix| fix.contains(" in `store.pins[*]` in __main__ instead, or ")));
        }
    }
    // Few blocks say little, and of what does not grow all that hold it do.
    let both = Some("held by `store` in __main__".to_owned());
    assert_eq!(
        told(Kind::Leak, 200, &[recent, pins]).0,
        Some("held by `store.recent[*]` in __main__".into())
    );
    assert_eq!(told(Kind::CarryOver, 20, &[pins, recent]).0, both);
    let more = ("__main__.store.more[*]", Some("unbounded"));
    assert_eq!(told(Kind::Growing, 20, &[pins, recent, more]).0, both);
}

#[test]
fn a_metric_is_to_be_reset() {
    let mut f = held(&["__main__.curve.preds[*]", "__main__.curve.target[*]"], 512.0);
    let reset = "call `reset()` of the metric once its result is computed: ";
    assert!(!wording::advice(&f).is_some_and(|fix| fix.starts_with(reset)));
    for frame in f.sites.iter_mut().flat_map(|site| &mut site.stack).take(1) {
        frame.frame.file = "/x/site-packages/torchmetrics/metric.py".into();
    }
    let fix = wording::advice(&f).unwrap_or_default();
    assert!(fix.starts_with(reset) && fix.ends_with("(`curve` in __main__)"), "{fix}");
}

#[test]
fn gradients_that_live_on_are_given_up_earlier() {
    let told = |path: &str| {
        let mut f = held(&[path], 512.0);
        f.kind = Kind::CarryOver;
        wording::advice(&f).expect("a carry-over has advice")
    };
    let earlier = "call `zero_grad()` right after the optimizer's step";
    assert!(told("__main__.opt.param_groups[0]['params'][*].grad").starts_with(earlier));
    assert!(!told("__main__.opt.param_groups[0]['params'][*].grad_fn").starts_with(earlier));
}

/// Where nothing but an optimizer's state knows the parameters, no group is to be removed.
#[test]
fn what_only_the_state_of_an_optimizer_has_is_stale() {
    for (path, words) in [
        (
            "__main__.opt.state → its keys.grad",
            "remove the entries of parameters that were replaced from `state`",
        ),
        (
            "__main__.opt.param_groups[*]['params'][0]",
            "remove the parameter groups that are no longer needed",
        ),
    ] {
        let mut f = held(&[path], 512.0);
        f.sites[0].stack[0].frame.file = "/site-packages/torch/optim/adam.py".into();
        let told = wording::advice(&f).expect("a leak has advice");
        assert!(told.starts_with(words), "{told}");
    }
}

/// The variables of a model and their gradients, which are as many: it is the model that is not needed.
#[test]
fn a_model_with_its_gradients_is_to_be_dropped() {
    let mut f = held(&["__main__.net.layers[*].weight.grad", "__main__.net.layers[*].weight"], 512.0);
    f.live_bytes = 2 * f.sites[0].live_bytes + 1;
    f.sites.push(f.sites[0].clone());
    f.sites[1].stack[0].frame.file = "/site-packages/torch/nn/modules/module.py".into();
    f.sites[1].stack[0].frame.function = "Module._apply".into();
    let told = wording::advice(&f).expect("a leak has advice");
    assert!(told.starts_with("drop the models and optimizers"), "{told}");
}

#[test]
fn what_to_do_about_a_cycle_depends_on_the_collector() {
    for (collected, off, words) in [
        (false, false, ", or call `gc.collect()` where a pause does not matter"),
        (true, false, ", or call `gc.collect()` more often, where a pause does not matter"),
        (true, true, ", or call `gc.collect()` more often, where a pause does not matter"),
        (false, true, ", or switch garbage collection on again (`gc.enable()`)"),
    ] {
        let mut f = held(&["garbage waiting for the cyclic collector: A → A"], 512.0);
        (f.is_collected, f.collector_is_off) = (collected, off);
        let told = wording::advice(&f).expect("a leak has advice");
        assert!(told.ends_with(words), "{collected}, {off}: {told}");
    }
}
