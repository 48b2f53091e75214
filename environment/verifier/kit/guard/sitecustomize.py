# Stands before any other module of this name: what an agent planted as sitecustomize does not run with the tests.
