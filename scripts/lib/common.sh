# What the shell scripts share: where things are, --help, and environments of downloaded packages, each made
# once.
#
# Sets `repo` and `target` (the build directory: LEAKTRACE_TARGET, or target/ of the checkout).

# shellcheck shell=bash
unset LD_PRELOAD
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
target=${LEAKTRACE_TARGET:-$repo/target}

# Prints the caption of the calling script, which is the comment at its top.
usage() {
    sed -n '2,/^[^#]/ s/^# \{0,1\}//p' "$0"
}

# Answers --help with the caption; call it with the script's arguments.
answer_help() {
    if [[ ${1:-} == --help || ${1:-} == -h ]]; then
        usage
        exit 0
    fi
}

# Ends a script that was called with arguments and takes none.
take_no_arguments() {
    answer_help "$@"
    if [[ $# -gt 0 ]]; then
        echo "${0##*/}: takes no arguments (--help says more)" >&2
        exit 2
    fi
}

# make_once NAME PACKAGES: prints the path of $target/NAME, after calling `make FOLDER PACKAGES` where that
# folder was not finished before, or with other packages. Scripts that run at the same time wait for one
# another.
make_once() {
    local folder=$target/$1 packages=$2 lock
    finished() { [[ -e $folder/.complete && $(<"$folder/.complete") == "$packages" ]]; }
    if ! finished; then
        mkdir -p "$target"
        exec {lock}>"$target/.$1-lock"
        flock "$lock"
        if ! finished; then
            rm -rf "$folder"
            make "$folder" "$packages"
            printf '%s\n' "$packages" >"$folder/.complete"
        fi
        exec {lock}>&-
    fi
    echo "$folder"
}

# Prints the interpreter that virtual environments are made from. The system's comes first: it is compiled with profiles, a
# version manager's is not, and PyTorch's import takes a sixth more time there.
base_python() {
    if /usr/bin/python3.11 -c 'import ensurepip, pip, venv' 2>/dev/null; then
        echo /usr/bin/python3.11
        return
    fi
    command -v python3.11 || command -v python3 || {
        echo "${0##*/}: no python3 found" >&2
        return 2
    }
}

# find_python VERSION: prints the path of this machine's CPython VERSION (3.9), also where a version manager keeps it; fails
# if there is none.
find_python() {
    local python
    for python in "$(command -v "python$1" || true)" "$HOME"/.pyenv/versions/*/bin/"python$1"; do
        # A version manager's shim may be there for a version that is not.
        if [[ -x $python ]] && "$python" -c pass 2>/dev/null; then
            echo "$python"
            return
        fi
    done
    return 1
}

# install_packages PYTHON PACKAGES [PIP_OPTION …]: exactly these packages, none of their dependencies.
install_packages() {
    local python=$1 packages=$2
    shift 2
    # shellcheck disable=SC2086  # one argument a package
    "$python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps "$@" $packages >&2
}
