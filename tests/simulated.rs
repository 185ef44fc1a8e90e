//! What the simulated GPU's libraries say of the machine, as PyTorch asks them. The driver's own tests are in
//! `cuda/driver/tests`.

use crate::common::Run;
use crate::common::programs::torch;
use crate::common::simulated_libraries;

fn machine(what: &str) -> Run {
    torch("machine.py").arg(what)
}

#[test]
fn cudnn_is_as_new_as_any_wheel_wants() {
    // PyTorch takes every minor version that is not below its own: 9.26 in PyTorch 2.15.
    assert_eq!(machine("cudnn").run().success().text(), "(9, 99, 0) 99900\n");
}

#[test]
fn nvml_knows_the_devices_and_what_this_process_uses() {
    let run = machine("nvml").env("SIMGPU_DEVICES", "3").env("CUDA_VISIBLE_DEVICES", "2,0").run().success();
    let expected = "before 1\ninit 0\ncount 3\nindex 2\nuuid True\nmemory True\nprocesses 1 True True\nno room 7 1\n\
                    fabric 3\nunknown 6\nend 0\n";
    assert_eq!(run.text(), expected);
    let words = machine("out").run().success().text();
    assert!(words.contains("this process has ") && words.contains(" memory in use"), "{words}");
}

#[test]
fn asking_how_many_devices_there_are_records_nothing() {
    for devices in ["1", "4"] {
        let run = machine("count").traced().env("SIMGPU_DEVICES", devices).run().success();
        assert_eq!(run.text(), format!("{devices} False\n"));
        assert!(run.recordings().is_empty());
    }
}

#[test]
fn the_driver_can_be_linked_by_its_plain_name() {
    // As Triton does, which builds its launcher where the program runs.
    let folder = simulated_libraries();
    assert_eq!(
        folder.join("libcuda.so").canonicalize().unwrap(),
        folder.join("libcuda.so.1").canonicalize().unwrap()
    );
}
