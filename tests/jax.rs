//! Plugins of XLA's: a stand-in of the tests' own, whose buffers are made, moved and ended in every way there is; and JAX,
//! by a plugin for the processor: the blocks, steps, lines, holders and verdicts that a GPU's would have.

use std::sync::OnceLock;

use crate::common::grows::flat;
use crate::common::programs::{compile, jax_gpu_python, jax_python, script};
use crate::common::report::{Report, call};
use crate::common::{Run, library, simulated_libraries, target};

/// The plugin, under a name that JAX does not know.
fn plugin() -> &'static str {
    static PLUGIN: OnceLock<String> = OnceLock::new();
    PLUGIN.get_or_init(|| {
        let ask = "import sysconfig; print(sysconfig.get_path('purelib'), end='')";
        let out = std::process::Command::new(jax_python()).args(["-c", ask]).output().unwrap();
        let packages = String::from_utf8(out.stdout).unwrap();
        format!("processor:{packages}/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so")
    })
}

fn untraced(program: &str) -> Run {
    Run::new(jax_python())
        .env("PJRT_NAMES_AND_LIBRARY_PATHS", plugin())
        .env("JAX_PLATFORMS", "processor")
        .env("LEAKTRACE_QUIET", "1")
        .arg(script(&format!("jax/{program}.py")))
}

fn jax(program: &str) -> Run {
    untraced(program).traced()
}

/// A program with the plugin for CUDA, on the simulated GPU.
fn on_gpu(program: &str) -> Run {
    let files = simulated_libraries().join("libsimgpu_files.so");
    Run::new(jax_gpu_python())
        .simulated()
        .env("LD_PRELOAD", format!("{}:{}", library().display(), files.display()))
        .env("LEAKTRACE_QUIET", "1")
        .arg(script(&format!("jax/{program}.py")))
}

fn mark(name: &str, mark: &str) -> u64 {
    let source = std::fs::read_to_string(script("jax/programs.py")).unwrap();
    let begin = source.find(&format!("\ndef {name}(")).unwrap();
    let line = source[begin..].find(mark).map(|at| source[..begin + at].lines().count());
    line.unwrap_or_else(|| panic!("{name} has no {mark}")) as u64
}

/// What is true of a program that leaks: its kind, the line that allocates (a mark in it, or in a function that it calls),
/// bytes per step, and a name on the path to the holder.
struct Truth {
    name: &'static str,
    kind: &'static str,
    at: (&'static str, &'static str),
    bytes: f64,
    holder: &'static str,
}

const STEPS: u64 = 60;

#[track_caller]
fn judged(truth: &Truth) {
    let name = truth.name;
    let leaking = jax("programs").arg(name).run().success();
    let report = Report::of(&leaking.recording());
    assert_eq!((report.steps(), report.source()), (STEPS, "loop"), "{name}");
    let [finding] = report.findings() else { panic!("{name}: {:#?}", report.findings()) };
    let site = &finding["sites"][0];
    assert_eq!(finding["kind"], truth.kind, "{name}");
    assert_eq!(site["allocated_at"]["line"], mark(truth.at.0, truth.at.1), "{name}: {site:#}");
    let per_step = finding["bytes_per_step"].as_f64().unwrap();
    assert!((per_step - truth.bytes).abs() <= 0.01 * truth.bytes, "{name}: {per_step} per step");
    let holders = finding["holders"].as_array().unwrap();
    let named = |h: &serde_json::Value| h["path"].as_str().unwrap().replace('`', "").contains(truth.holder);
    assert!(holders.iter().any(named), "{name}: {holders:#?}");
    report.assert_whole();

    let mended = jax("programs").args([name, "mended"]).run().success();
    let report = Report::of(&mended.recording());
    assert_eq!(report.steps(), STEPS, "{name}, mended");
    let accused: Vec<_> = report.findings().iter().filter(|f| f["kind"] != "periodic").collect();
    assert!(accused.is_empty(), "{name}, mended: {accused:#?}");
    report.assert_whole();
}

macro_rules! programs {
    ($($test:ident: $name:literal $kind:literal at $at:literal $mark:literal, $bytes:literal, $holder:literal;)+) => {$(
        #[test]
        fn $test() {
            judged(&Truth { name: $name, kind: $kind, at: ($at, $mark), bytes: $bytes, holder: $holder });
        }
    )+};
}

programs! {
    losses_that_are_kept: "losses" "leak" at "losses" "# made", 4.0, "kept[*]";
    gradients_that_an_object_keeps: "attribute" "leak" at "attribute" "# made", 16384.0, "metrics.grads[*]";
    batches_that_a_function_keeps: "closure" "leak" at "batch" "return", 2048.0, "seen[*]";
    outputs_in_a_container_with_a_bound: "bounded" "leak" at "predict" "x = jnp", 320.0, "newest[*]";
    outputs_that_are_dropped_now_and_then: "sawtooth" "leak" at "predict" "x = jnp", 320.0, "gathered[*]";
    a_state_that_is_donated: "donation" "leak" at "donation" "# made", 65536.0, "kept[*]";
    a_shape_that_is_compiled_anew: "shapes" "leak" at "shapes" "# kept", 40.0, "kept[*]";
    exceptions_that_are_kept: "exceptions" "leak" at "exceptions" "# made", 40852.0, "failures[*]";
    arrays_that_are_deleted: "deleted" "leak" at "predict" "x = jnp", 320.0, "kept[*]";
    outputs_on_several_devices: "sharded" "leak" at "sharded" "# made", 4096.0, "kept[*]";
    outputs_that_are_summed_up_in_the_end: "summed_up" "leak" at "summed_up" "# made", 320.0, "kept[*]";
    losses_before_a_result_as_large_as_all: "losses_and_a_result" "leak" at "losses_and_a_result" "# made", 4.0, "kept[*]";
    outputs_of_clients_that_wait_for_a_lock: "served_one_at_a_time" "leak" at "served_one_at_a_time" "# made", 2048.0, "kept[*]";
    outputs_of_the_only_call: "one_call" "leak" at "one_call" "# made", 4096.0, "kept[*]";
    outputs_in_cycles: "cycles" "pending-gc" at "predict" "x = jnp", 320.0, "garbage";
}

#[test]
fn loops_outside_of_functions_have_steps_where_one_call_is_all_that_is_seen() {
    for what in ["array", "items", "while", "nested", "pieces"] {
        let report = Report::of(&jax("module_loops").arg(what).run().success().recording());
        let [leak] = report.findings() else { panic!("{what}: {:#?}", report.findings()) };
        let told = (report.steps(), &leak["kind"], &leak["holders"][0]["path"]);
        assert_eq!(told, (120, &"leak".into(), &"__main__.kept[*]".into()), "{what}");
    }
}

/// Each compiles what is new in it: few programs, far apart.
#[test]
fn programs_of_stages_are_no_leak() {
    let report = Report::of(&jax("programs").arg("stages").run().success().recording());
    let grows = report.findings().iter().any(|f| f["kind"] == "leak" || f["kind"] == "growing");
    assert!(report.steps() == 125 && !grows, "{:#?}", report.findings());
}

#[test]
fn a_staircase_is_found() {
    let ran = jax("programs").arg("staircase").run().success();
    let report = Report::of(&ran.recording());
    let at = mark("staircase", "# made");
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!(
        (&finding["kind"], &finding["sites"][0]["allocated_at"]["line"]),
        (&"growing".into(), &at.into())
    );
    let mended = jax("programs").args(["staircase", "mended"]).run().success();
    let report = Report::of(&mended.recording());
    assert!(report.findings().is_empty(), "{:#?}", report.findings());
}

/// What a training keeps it has leaked, whatever keeps nothing behind it.
#[track_caller]
fn judged_with_an_evaluation(name: &str, bytes: f64) {
    let ran = jax("programs").arg(name).run().success();
    let report = Report::of(&ran.recording());
    assert_eq!(report.steps(), 2 * STEPS, "{name}");
    let [finding] = report.findings() else { panic!("{name}: {:#?}", report.findings()) };
    let sites = finding["sites"].as_array().unwrap();
    assert_eq!((&finding["kind"], sites.len()), (&"leak".into(), 1), "{name}: {sites:#?}");
    assert_eq!(sites[0]["allocated_at"]["line"], mark(name, "# made"), "{name}");
    assert_eq!(finding["bytes_per_step"], bytes, "{name}");

    let mended = jax("programs").args([name, "mended"]).run().success();
    let report = Report::of(&mended.recording());
    let accused: Vec<_> = report.findings().iter().filter(|f| f["kind"] != "carry-over").collect();
    assert!(accused.is_empty(), "{name}, mended: {accused:#?}");
}

#[test]
fn losses_that_are_kept_before_an_evaluation() {
    judged_with_an_evaluation("evaluated", 4.0);
}

#[test]
fn gradients_that_are_kept_before_an_evaluation() {
    judged_with_an_evaluation("gradients_evaluated", 19240.0);
}

#[test]
fn outputs_of_one_array_that_are_kept_before_an_evaluation() {
    judged_with_an_evaluation("one_evaluated", 2048.0);
}

#[test]
fn outputs_of_one_small_array_that_are_kept_before_an_evaluation() {
    judged_with_an_evaluation("small_evaluated", 128.0);
}

#[test]
fn outputs_that_are_kept_of_all_data_before_an_evaluation() {
    judged_with_an_evaluation("full_batch_evaluated", 512.0);
}

/// Each call is a program of its own, compiled for one output more.
#[test]
fn a_history_that_each_call_returns_anew_grows() {
    let blocks = |args: &[&str]| {
        let report = Report::of(&jax("programs").args(args).run().success().recording());
        assert_eq!(report.steps(), STEPS);
        let grows = |f: &&serde_json::Value| f["layer"] == "block" && f["kind"] != "carry-over";
        report.findings().iter().filter(grows).cloned().collect::<Vec<_>>()
    };
    let found = blocks(&["returned_anew"]);
    let [finding] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(finding["kind"], "growing");
    assert_eq!(finding["sites"][0]["allocated_at"]["line"], mark("returned_anew", "# made"));
    assert_eq!(finding["growth_bytes_per_step"], 4096.0);
    assert_eq!(finding["holders"][0]["path"], "returned_anew() local `history`[*]");
    assert!(blocks(&["returned_anew", "mended"]).is_empty());
}

/// The old one is freed when the new one is there, and no allocation comes behind that.
#[test]
fn what_the_last_step_replaces_is_freed_in_it() {
    let ran = jax("programs").arg("refreshed").run().success();
    let report = Report::of(&ran.recording());
    assert_eq!(report.steps(), 200);
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let at = &finding["sites"][0]["allocated_at"]["line"];
    assert_eq!(
        (at, &finding["live_blocks"]),
        (&mark("refreshed", "# made").into(), &1.into()),
        "{finding:#}"
    );
    assert_eq!(finding["live_bytes"], 200 * 4096);

    let mended = Report::of(&jax("programs").args(["refreshed", "mended"]).run().success().recording());
    assert!(mended.findings().is_empty(), "{:#?}", mended.findings());
}

/// A generator may get the memory of the one before, which another loop went over.
#[test]
fn a_generator_is_of_the_loop_that_goes_over_it() {
    let ran = jax("programs").arg("shared_generator").run().success();
    let report = Report::of(&ran.recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let line = &finding["sites"][0]["allocated_at"]["line"];
    assert_eq!((report.steps(), line), (500, &mark("shared_generator", "# made").into()));
}

/// A task that makes what another one works on comes round as often: each is a step once.
#[test]
fn what_a_task_hands_to_another_is_one_step() {
    let report = Report::of(&jax("programs").arg("handed_over").run().success().recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let line = &finding["sites"][0]["allocated_at"]["line"];
    assert_eq!((report.steps(), line), (120, &mark("handed_over", "# made").into()));
}

/// Nothing is allocated while it is read: that the loop was left shows by the copies.
#[test]
fn what_is_read_on_the_host_when_a_prediction_is_over_is_no_leak() {
    let report = Report::of(&jax("programs").arg("read_on_the_host").run().success().recording());
    assert_eq!((report.steps(), report.findings().len()), (2 * STEPS, 0), "{:#?}", report.findings());
}

#[test]
fn an_expression_over_what_was_kept_is_not_the_steps() {
    let report = Report::of(&jax("programs").arg("described").run().success().recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let line = &finding["sites"][0]["allocated_at"]["line"];
    assert_eq!((report.steps(), line), (2 * STEPS, &mark("described", "# made").into()));
}

#[test]
fn who_holds_most_bytes_is_named_first() {
    let report = Report::of(&jax("programs").arg("of_two_sizes").run().success().recording());
    let first = &report.findings()[0]["holders"][0];
    assert_eq!(first["path"], "of_two_sizes() local `large`[*]", "{:#?}", report.findings());
}

/// The first loop trains nothing: what it made, the second one has a use for.
#[test]
fn what_another_loop_works_with_is_no_leak() {
    let ran = jax("programs").arg("features").run().success();
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps(), report.findings().len()), (2 * STEPS, 0), "{:#?}", report.findings());
}

#[test]
fn what_trains_belongs_to_the_round_that_it_begins() {
    let ran = jax("programs").arg("trained_first").run().success();
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps(), report.findings().len()), (3 * STEPS, 0), "{:#?}", report.findings());
}

/// One line makes the output that a container keeps, and what variables hold: a site for each.
#[test]
fn a_container_that_is_not_full_is_no_leak_beside_what_lives_on() {
    let ran = jax("programs").arg("seldom").run().success();
    let report = Report::of(&ran.recording());
    let accused: Vec<_> = report.findings().iter().filter(|f| f["kind"] != "carry-over").collect();
    assert!(report.steps() == STEPS && accused.is_empty(), "{accused:#?}");
}

/// Parameters whose memory is given on are not carried over, either.
#[test]
fn what_fills_up_in_the_first_steps_is_no_leak() {
    let ran = jax("programs").arg("first_steps").run().success();
    let report = Report::of(&ran.recording());
    assert_eq!((report.steps(), report.findings().len()), (STEPS, 0), "{:#?}", report.findings());
}

/// An array that is spread over devices is one cause, whose bytes are all of theirs.
#[test]
fn what_is_on_several_devices_is_one_finding() {
    let ran = jax("programs").arg("sharded").run().success();
    let recording = ran.recording();
    let report = Report::of(&recording);
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    let devices = finding["devices"].as_array().unwrap();
    assert!(devices.len() > 1 && finding["sites"].as_array().unwrap().len() == devices.len(), "{finding:#}");
    let text = call([recording.as_os_str()]).stdout;
    let text = flat(&String::from_utf8(text).unwrap());
    assert!(text.contains("devices 0, 1, "), "{text}");
}

#[test]
fn programs_that_are_compiled_again_and_again_are_counted() {
    let ran = jax("programs").arg("lengths").run().success();
    let recording = ran.recording();
    let report = Report::of(&recording);
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!((&finding["kind"], &finding["layer"]), (&"leak".into(), &"code".into()), "{finding:#}");
    let [site] = &finding["sites"].as_array().unwrap()[..] else { panic!("{finding:#}") };
    assert_eq!(site["allocated_at"]["line"], mark("lengths", "# compiled"), "{site:#}");
    assert_eq!(finding["live_blocks"], STEPS / 3, "{finding:#}");
    let told = flat(&String::from_utf8(call([recording.as_os_str()]).stdout).unwrap());
    let answer = "1 likely leak: a new program is compiled in 1 of 3 steps at ";
    assert!(told.starts_with(answer), "{told}");
    assert!(
        told.contains("Likely leak: a new program is compiled in 1 of 3 steps, 20 so far compiled at "),
        "{told}"
    );
    assert!(told.contains("`jax.clear_caches()`"), "{told}");
    report.assert_whole();

    let mended = jax("programs").args(["lengths", "mended"]).run().success();
    let report = Report::of(&mended.recording());
    assert!(report.findings().is_empty(), "{:#?}", report.findings());
}

/// It takes time, and no memory in the end.
#[test]
fn programs_that_are_compiled_in_each_step_and_released_are_told() {
    let text = |args: &[&str]| {
        let ran = jax("programs").args(args).run().success();
        flat(&String::from_utf8(call([ran.recording().as_os_str()]).stdout).unwrap())
    };
    let (line, told) = (mark("lambdas", "# compiled"), text(&["lambdas"]));
    let answer = "1 recompilation: a new program is compiled and released in each step at ";
    assert!(
        told.starts_with(&format!("No leak in {STEPS} steps; {answer}programs.py:{line} lambdas")),
        "{told}"
    );
    assert!(told.contains("make it once, outside of the loop"), "{told}");
    assert!(!text(&["lambdas", "mended"]).contains("recompilation"));
}

#[test]
fn live_bytes_are_those_of_live_arrays() {
    live_bytes_agree(jax("live"));
}

/// The pool, three quarters of the device's memory, is reserved, and no allocation.
#[test]
fn so_are_those_of_two_gpus() {
    let report = live_bytes_agree(on_gpu("live").env("SIMGPU_DEVICES", "2"));
    for device in [0, 1] {
        assert_eq!(report.device(device, "driver_allocation_bytes"), 0, "device {device}");
        assert!(report.device(device, "reserved_bytes") >= 60 << 30, "device {device}");
    }
    let [oom] = report.0["out_of_memory"].as_array().unwrap().as_slice() else { panic!("one failure") };
    assert_eq!((&oom["requested_bytes"], &oom["device"]), (&(1u64 << 47).into(), &0.into()));
}

#[track_caller]
fn live_bytes_agree(run: Run) -> Report {
    let ran = run.env("LEAKTRACE_STEP", "api").run().success();
    let recording = ran.recording();
    let text = ran.text();
    let points = text.lines().filter(|line| !line.starts_with("failed:"));
    let mut count = 0;
    for (step, point) in (1..).zip(points) {
        let (name, bytes) = point.rsplit_once(' ').unwrap();
        let report = Report::at(&recording, step);
        let devices = report.0["devices"].as_array().unwrap();
        let live: u64 = devices.iter().map(|d| d["live_bytes"].as_u64().unwrap()).sum();
        assert_eq!(live, bytes.parse::<u64>().unwrap(), "{name}: {devices:#?}");
        count += 1;
    }
    assert!(count >= 10, "{text}");
    let report = Report::of(&recording);
    assert!(report.0["devices"].as_array().unwrap().len() > 1, "several devices");
    report.assert_whole();
    report
}

#[test]
fn a_program_is_judged_on_the_simulated_gpu() {
    // As it is installed: the parts of the simulated GPU beside the program's folder.
    let installed = tempfile::TempDir::new().unwrap();
    let (bin, parts) = (installed.path().join("bin"), installed.path().join("simgpu"));
    std::fs::create_dir(&bin).unwrap();
    std::fs::create_dir(&parts).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_leaktrace"), bin.join("leaktrace")).unwrap();
    simulated_libraries();
    for part in ["libsimgpu_driver.so", "libsimgpu_runtime.a", "simgpu-stubs"] {
        std::os::unix::fs::symlink(target().join("release").join(part), parts.join(part)).unwrap();
    }
    let run = Run::new(bin.join("leaktrace"))
        .env("LEAKTRACE_LIBRARY", library())
        .env("LEAKTRACE_QUIET", "1")
        .env("XDG_CACHE_HOME", installed.path());
    let run = run.args(["run", "--simulate=4G", "--"]).arg(jax_gpu_python());
    let ran = run.arg(script("jax/programs.py")).arg("losses").run().success();
    let report = Report::of(&ran.recording());
    let [finding] = report.findings() else { panic!("{:#?}", report.findings()) };
    assert_eq!((report.steps(), &finding["kind"]), (STEPS, &"leak".into()), "{finding:#}");
    assert_eq!(finding["sites"][0]["allocated_at"]["line"], mark("losses", "# made"), "{finding:#}");
    assert_eq!(finding["bytes_per_step"], 4.0, "{finding:#}");
    assert!(finding["holders"][0]["path"].as_str().unwrap().contains("kept"), "{finding:#}");
    assert_eq!(report.0["devices"][0]["name"], "Simulated GPU");
    report.assert_whole();
}

#[test]
fn memory_that_runs_out_is_told_with_who_holds_it() {
    let ran = jax("live").env("LEAKTRACE_STEP", "api").run().success();
    let report = Report::of(&ran.recording());
    let [oom] = report.0["out_of_memory"].as_array().unwrap().as_slice() else { panic!("one failure") };
    assert_eq!(oom["requested_bytes"], 1u64 << 47);
    let rows = oom["retained"].as_array().unwrap();
    let held = |row: &&serde_json::Value| row["holders"][0]["path"].as_str().is_some();
    let kept = |row: &&serde_json::Value| row["holders"][0]["path"].as_str().unwrap().contains("kept[");
    assert_eq!(rows.iter().filter(held).count(), rows.len(), "{rows:#?}");
    // All but the argument of the call that failed.
    assert!(rows.iter().filter(kept).count() + 1 >= rows.len() && rows.len() >= 10, "{rows:#?}");
}

#[test]
fn the_words_are_those_of_jax() {
    let ran = jax("programs").arg("losses").run().success();
    let text = String::from_utf8(call([ran.recording().as_os_str()]).stdout).unwrap();
    let told = flat(&text);
    assert!(told.contains("store `float(x)` (if it is one number) or `np.array(x)` in `kept[*]`"), "{text}");
    assert!(told.contains("CPU 0 (cpu):"), "{text}");
    for word in ["torch", "PyTorch", ".item()", "reserved memory +0", "in ExecuteReplicated"] {
        assert!(!told.contains(word), "{word}: {text}");
    }
}

#[test]
fn nothing_of_a_program_changes() {
    let (traced, alone) = (jax("live").run().success(), untraced("live").run().success());
    assert_eq!(traced.text(), alone.text());
}

/// The stand-in, under so many names, and what calls all of them.
fn calls(plugins: usize, functions: &str) -> Run {
    let plugin = |n| compile("pjrt_plugin.c", &format!("plugin{n}.so"), &["-shared", "-fPIC"]);
    Run::new(compile("pjrt_calls.c", "pjrt_calls", &[]))
        .args((0..plugins).map(plugin))
        .env("PLUGIN_FUNCTIONS", functions)
        .env("LEAKTRACE_QUIET", "1")
        .env("LEAKTRACE_STEP", "api")
        .simulated()
}

#[track_caller]
fn agrees_at_each_point(plugins: usize, functions: &str) {
    let ran = calls(plugins, functions).traced().run().success();
    let recording = ran.recording();
    for (step, point) in (1..).zip(ran.text().lines()) {
        let (point, code) = point.rsplit_once(' ').unwrap();
        let (name, bytes) = point.rsplit_once(' ').unwrap();
        let report = Report::at(&recording, step);
        let live = report.device(0, "block_bytes") + report.device(1, "block_bytes");
        assert_eq!(live, bytes.parse::<u64>().unwrap(), "{name} of {functions}");
        assert_eq!(report.device(1, "code_bytes"), code.parse::<u64>().unwrap(), "{name} of {functions}");
        // The plugin's pool is what they lie in.
        assert_eq!(report.device(0, "driver_allocation_bytes"), 0, "{name}");
    }
    let report = Report::of(&recording);
    assert_eq!(report.device(0, "reserved_bytes"), plugins as u64 * (64 << 20));
    assert_eq!(report.0["out_of_memory_count"], 2 * plugins);
    let failures = report.0["out_of_memory"].as_array().unwrap();
    assert!(
        failures.iter().all(|oom| oom["requested_bytes"] == 1u64 << 40 && oom["device"] == 1),
        "{failures:#?}"
    );
    report.assert_whole();
    assert_eq!(ran.text(), calls(plugins, functions).run().success().text());
}

#[test]
fn buffers_are_followed_however_they_are_made_moved_and_ended() {
    agrees_at_each_point(1, "132");
}

#[test]
fn plugins_of_one_process_are_told_apart() {
    agrees_at_each_point(3, "132");
}

#[test]
fn a_plugin_may_have_fewer_functions() {
    agrees_at_each_point(1, "118");
    agrees_at_each_point(1, "90");
}
